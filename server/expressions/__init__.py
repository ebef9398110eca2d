"""The expression language of filters, projections and conditions: one grammar, several back ends."""
