# Compares the binaries before and after a change. A ratio is the median of the
# per-round ratios; above 1 means more operations, or more CPU.
END {
  printf "%-16s %10s %10s %7s %10s %10s %7s %10s %10s\n", "workload", "before/s", "after/s", "ratio", "CPU before", "CPU after", "ratio", "MB before", "MB after"
  for (i = 1; i <= count; i++) {
    key = order[i]
    printf "%-16s %10.0f %10.0f %7s %10.1f %10.1f %7s %10.0f %10.0f\n", key, median(ops["before", key]), median(ops["stele", key]), change(ops["stele", key], ops["before", key]), median(cpu["before", key]), median(cpu["stele", key]), change(cpu["stele", key], cpu["before", key]), median(rss["before", key]), median(rss["stele", key])
  }
}
