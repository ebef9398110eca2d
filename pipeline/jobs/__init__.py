"""The jobs of `amps-pipeline`: one module each, started by `pipeline.cli`.

Each job declares its arguments and does its work with a `JobRun`, which provides Spark when the job
needs it, the dry run, and the progress display. The output of a job is complete or absent. A job
that is started again resumes where the previous run ended.
"""
