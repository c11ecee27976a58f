"""What `journal demo` is made of: a model server and a refund service on loopback, an agent, and its killer.

Everything runs on this machine, without keys and without a network. Start with `scenario.py`.
"""
