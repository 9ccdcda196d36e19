# Prints medians over the rounds, and Stele's rates relative to the other servers'.
END {
  printf "%-14s %10s %10s %10s %8s %8s %10s %10s\n", "workload", "stele/s", "null/s", "emul/s", "of null", "of emul", "CPU stele", "CPU null"
  for (i = 1; i <= count; i++) {
    key = order[i]; s = median(ops["stele", key]); n = median(ops["null", key]); e = median(ops["emulator", key])
    printf "%-14s %10.0f %10.0f %10s %8s %8s %10.1f %10.1f\n", key, s, n, (e ? int(e) : "-"), ratio(s, n), ratio(s, e), median(cpu["stele", key]), median(cpu["null", key])
  }
}
