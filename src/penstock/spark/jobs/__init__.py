"""Ready-made jobs over streams: planned in the driver, worked in Spark's tasks, reported as one.

A job's data never passes through the JVM: a task gets a part, reads and writes it with our own
compiled code, and returns what it found. Parts follow from the options and the stream alone, so
that a job that is run again, or elsewhere, makes the same ones.
"""
