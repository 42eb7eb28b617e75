"""What does happen: a plan's settings on a real engine or server, measured and compared.

A plan, a profile and a model come in; rows of figures go out, and steps to calibrate with.
"""
