# The same usage on two clusters: jobs run on Spur's, and what they have used is written into the file from which
# Slurm's controller reads usage when it starts. Sourced after clusters.sh.

on_slurm() { env -u SPUR_CONF SLURM_CONF="$WORK/slurm/slurm.conf" PATH="/usr/bin:/bin:/usr/sbin" "$@"; }
on_spur() { env -u SLURM_CONF SPUR_CONF="$WORK/spur/spur.toml" PATH="$WORK/spur/bin:/usr/bin:/bin" "$@"; }
both() { on_slurm "$@" >/dev/null && on_spur "$@" >/dev/null; }

# Runs a job for each USER:ACCOUNT:CPUS:SECONDS on Spur's cluster, and waits until ranks follow from their usage.
use() {
  local job user account cpus seconds
  for job in "$@"; do
    IFS=: read -r user account cpus seconds <<<"$job"
    (cd /tmp && on_spur setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups \
      sbatch -p long -A "$account" -n "$cpus" -o /dev/null --wrap "sleep $seconds" >/dev/null)
  done
  until_ok eval '[ -z "$(on_spur squeue -h)" ]'
  # Ranks are those of the last period, and periods pass while a job waits.
  on_spur sbatch -H -A root -o /dev/null --wrap true >/dev/null
  until_ok eval '[ "$(on_spur sshare -nP -u bin -U -o fairshare)" != 1.000000 ]'
}

# Notes the usage of users on Spur's cluster, and the numbers of Slurm's associations.
take_usage() {
  on_spur sshare -a -nP -o account,user,rawusage >"$WORK/usage"
  on_slurm sacctmgr -nP show assoc format=id,account,user >"$WORK/ids"
}

# Writes the noted usage as Slurm's controller keeps it: version, time, and for each association its number and what it
# has used. The controller must not run.
give_usage() {
  python3 - "$WORK" <<'END'
import struct, sys, time
work = sys.argv[1]
used = {}
for line in open(f"{work}/usage"):
    account, user, raw = (field.strip() for field in line.split("|"))
    used[account, user] = int(raw)
def text(value):
    data = value.encode() + b"\0"
    return struct.pack(">I", len(data)) + data
out = struct.pack(">HQ", 38 << 8, int(time.time()))
for line in open(f"{work}/ids"):
    number, account, user = line.strip().split("|")
    if user and used.get((account, user)):
        raw = used[account, user]
        out += struct.pack(">I", int(number)) + text(f"{raw:.6f}") + text(f"1={raw},5={raw}") + struct.pack(">I", 0)
open(f"{work}/slurm/state/assoc_usage", "wb").write(out)
END
}
