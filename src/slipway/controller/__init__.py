"""The controller process: informers -> world -> plan -> apply -> status, for every serving API that is switched on."""
