# Prints medians over the rounds, ratios to etcd, and the lowest acceptable ratios.
BEGIN {
  least["put C=16"] = "3.0"; least["put C=128"] = "2.2"; least["put C=512"] = "2.0"
  least["get C=128"] = "2.0"; least["cas C=128"] = "3 (2)"
  least["range C=1"] = "2.0"; least["range C=4"] = "2.3"
  least["watch C=1"] = "2"; least["watch C=16"] = "3"; least["keepalive C=128"] = "1.6"
}
END {
  printf "%-16s %10s %10s %10s %8s %8s %8s %9s %9s %8s %8s\n", "workload", "stele/s", "etcd/s", "newer/s", "of etcd", "of newer", "at least", "CPU stele", "CPU etcd", "MB stele", "MB etcd"
  for (i = 1; i <= count; i++) {
    key = order[i]; s = median(ops["stele", key]); e = median(ops["etcd", key]); n = median(ops["newer", key])
    printf "%-16s %10.0f %10.0f %10s %8s %8s %8s %9.1f %9.1f %8.0f %8.0f\n", key, s, e, (n ? int(n) : "-"), ratio(s, e), ratio(s, n), least[key], median(cpu["stele", key]), median(cpu["etcd", key]), median(rss["stele", key]), median(rss["etcd", key])
  }
}
