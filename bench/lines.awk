# Reads the JSON lines printed by the load generators and collects the results
# of every server (label) and workload, one value per round. wire.awk, meta.awk
# and before.awk print tables of them.

function field(name,   part) {
  if (!match($0, "\"" name "\":\"?[^,\"}]*")) return ""
  part = substr($0, RSTART, RLENGTH); sub(/^"[^"]*":"?/, "", part); return part
}

function median(list,   parts, n, i, j, t) {
  n = split(list, parts, " ")
  for (i = 1; i < n; i++) for (j = i + 1; j <= n; j++)
    if (parts[i] + 0 > parts[j] + 0) { t = parts[i]; parts[i] = parts[j]; parts[j] = t }
  return parts[int((n + 1) / 2)]
}

# Returns the median of the per-round ratios of two lists.
function change(after, before,   a, b, n, i, ratios) {
  n = split(after, a, " "); split(before, b, " ")
  for (i = 1; i <= n; i++) if (b[i] + 0 > 0) ratios = ratios " " (a[i] / b[i])
  return ratios == "" ? "-" : sprintf("%.2f", median(ratios))
}

function ratio(a, b) { return b ? sprintf("%.2f", a / b) : "-" }

/^\{/ {
  key = field("workload") " C=" field("c"); who = field("label")
  if (!(key in seen)) { seen[key] = 1; order[++count] = key }
  # For ranges and watches the rate is that of keys and events, not of calls.
  rate = field("workload") == "range" || field("workload") == "watch" ? "items_s" : "ops_s"
  ops[who, key] = ops[who, key] " " field(rate)
  cpu[who, key] = cpu[who, key] " " field("srv_cpu_us_op"); rss[who, key] = rss[who, key] " " field("srv_rss_mb")
  p99[who, key] = p99[who, key] " " field("p99_us")
  if (field("errors") + 0 > 0) print "errors in " who " " key > "/dev/stderr"
}
