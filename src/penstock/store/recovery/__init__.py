"""Opening a store: from the files of a directory to a ledger, and a report of what was found."""
