"""per_head.py REGION: the rain of a region, for each thousand people, into data/REGION.txt."""

import json
import sys
from pathlib import Path

region = sys.argv[1]
rain = json.loads(Path("data/rain.json").read_text(encoding="utf-8"))
lines = Path("data/people.csv").read_text(encoding="utf-8").split()
people = dict(line.split(",") for line in lines)
Path(f"data/{region}.txt").write_text(f"{sum(rain[region]) // int(people[region])}\n", encoding="utf-8")
