"""BaseModels, ClusterBaseModels and FineTunedWeights: the nodes or claims with their files, and the Jobs that load the
files."""
