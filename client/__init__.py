"""A client of the amps protocol: one sans-I/O core, a blocking and an asyncio shell."""
