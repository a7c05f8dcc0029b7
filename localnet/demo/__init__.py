"""The whole system at work: four nodes and four workers, one paid job on real text (`python -m localnet.demo`)."""
