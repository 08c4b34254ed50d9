"""Measuring a NATS server from outside.

`plan` says what is measured; `runs` starts load processes (`load`, with the compiled `loops`) and
measures, once or several servers in turns; `streams` makes the streams of a run; `servers` starts
the servers to compare. The command `penstock bench` is in `cli/bench/`.
"""
