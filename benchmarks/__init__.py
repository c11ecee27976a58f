"""What durability costs, as ratios to the raw store on the same disk, in the same run: `python -m benchmarks`.

Numbers of one day are worth nothing on another, and little on another machine; a ratio is measured in alternating
windows, so both sides meet the same noise. Next: `targets.py` (what is promised), `cases.py` (what is measured).
"""
