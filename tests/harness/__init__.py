"""The only place where the model and the queue meet: translation, observation, comparison, and what is built on them.

Everything else in tests/ sees one of the two. What stands here is checked itself: `mutants` breaks the queue on
purpose, and a lane that stays green over a broken queue is red.
"""
