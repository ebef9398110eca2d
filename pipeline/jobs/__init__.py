"""The jobs of `amps-pipeline`: one module each, started by `pipeline.cli`.

A job says what its arguments are, and does its work with a `Run`: Spark when it needs it, a dry run
if asked for, progress for whoever watches. What it leaves behind is complete or not there, and a
job that is started again goes on where the one before got to.
"""
