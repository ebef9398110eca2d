"""The expression language as Spark columns.

    from pipeline.expressions import Message, matches, value

    orders.where(matches("/qty > 3 AND /sym LIKE '^IB'", Message(col("body"))))
    orders.select(value("/price * /qty", Message(col("body"))).cast("double"))

An expression has the same semantics as in the server: it uses the same parser and the same back end
over columns, which Spark's Python workers run on Arrow batches. The type of a value is known only
at evaluation, as in the server, so values are VARIANTs; Spark casts them.
"""

from pipeline.expressions.columns import Message, matches, value
from pipeline.expressions.environment import Environment

__all__ = ["Environment", "Message", "matches", "value"]
