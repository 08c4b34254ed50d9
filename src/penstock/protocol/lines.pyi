# Everything here is for other compiled modules; see operations.pxd.
