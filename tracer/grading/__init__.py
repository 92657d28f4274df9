"""Grades handed-in notebooks: each runs apart, as hostile code; its answers' outputs are compared in a clean process.

`command` is what `python -m tracer grade` runs. `walls`, `worker`, `zygote` and `wire` are all that the closed process
loads; they import neither exercises nor references.
"""
