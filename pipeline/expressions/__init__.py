"""The expression language as Spark columns.

    from pipeline.expressions import Message, matches, value

    orders.where(matches("/qty > 3 AND /sym LIKE '^IB'", Message(col("body"))))
    orders.select(value("/price * /qty", Message(col("body"))).cast("double"))

What an expression means is what it means to the server: the same parser, the same back end over
columns, run by Spark's Python workers on Arrow batches. A value's type is known only when it is
there, as in the server, so values are VARIANTs; Spark casts them.
"""

from pipeline.expressions.columns import Message, matches, value
from pipeline.expressions.environment import Environment

__all__ = ["Environment", "Message", "matches", "value"]
