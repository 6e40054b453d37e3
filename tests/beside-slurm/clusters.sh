# Two equal clusters, on this host alone: Slurm's daemons and Spur's, each with a private directory under
# $WORK and ports of its own on the loopback interface. Sourced by `run`, and by `benches/beside-slurm` with
# more nodes.

slurm_port=${SLURM_PORT:-27801}
spur_port=${SPUR_PORT:-27901}
database_port=$((slurm_port + 1))
accounts_port=$((slurm_port + 2))
pids=()
# Number of nodes, number of those in the default partition, CPUs and memory in MiB of each, the largest
# number of jobs, and Spur's authentication method.
nodes=${nodes:-3} in_debug=${in_debug:-2} cpus=${cpus:-2} memory=${memory:-4000} max_jobs=${max_jobs:-10000} auth=${auth:-none}

# Ends every started process, by its id.
end_all() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null; done
  local daemons=()
  for file in "$WORK"/slurm/*.pid; do [ -f "$file" ] && daemons+=("$(cat "$file")"); done
  for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null; done
  for pid in "${daemons[@]}"; do timeout 30 tail --pid="$pid" -f /dev/null; done
  wait 2>/dev/null
}

# Waits until a command succeeds, at most a minute.
until_ok() {
  for _ in $(seq 600); do "$@" >/dev/null 2>&1 && return; read -rt 0.1 <> <(:) || :; done
  echo "beside-slurm: this never worked: $*" >&2
  return 1
}

node_lines() {
  for n in $(seq "$nodes"); do
    echo "NodeName=n$n NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((slurm_port + 10 + n)) CPUs=$cpus Sockets=1 CoresPerSocket=$cpus" \
      "ThreadsPerCore=1 RealMemory=$memory TmpDisk=1000 ${feature[$n]:+Features=${feature[$n]}}"
  done
}

feature=([1]=a,b [2]=a [3]=)

start_database() {
  local data=$WORK/database
  mkdir -p "$data" && chown mysql "$data"
  mysql_install_db --user=mysql --datadir="$data" --auth-root-authentication-method=normal >/dev/null 2>&1
  mariadbd --no-defaults --user=mysql --datadir="$data" --bind-address=127.0.0.1 --port=$database_port \
    --socket="$data/socket" --pid-file="$data/pid" --skip-grant-tables --innodb-flush-log-at-trx-commit=0 \
    >"$WORK/database.log" 2>&1 &
  pids+=($!)
  until_ok mariadb-admin --no-defaults -h127.0.0.1 -P$database_port ping
}

start_slurm() {
  local at=$WORK/slurm
  mkdir -p "$at"/{state,spool,log} && chmod 755 "$WORK" "$at"
  dd if=/dev/urandom of="$at/munge.key" bs=128 count=1 2>/dev/null && chmod 600 "$at/munge.key"
  munged --foreground --force --socket="$at/munge.socket" --key-file="$at/munge.key" --pid-file="$at/munge" \
    --seed-file="$at/munge.seed" --log-file="$at/munge.log" >/dev/null 2>&1 &
  pids+=($!)
  until_ok test -S "$at/munge.socket"
  cat >"$at/slurmdbd.conf" <<END
AuthType=auth/munge
AuthInfo=socket=$at/munge.socket
DbdHost=localhost
DbdPort=$accounts_port
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$database_port
StorageUser=slurm
StoragePass=none
StorageLoc=slurm_acct_db
LogFile=$at/log/slurmdbd.log
PidFile=$at/slurmdbd.pid
END
  chmod 600 "$at/slurmdbd.conf"
  {
    cat <<END
ClusterName=spur
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$slurm_port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$at/munge.socket
StateSaveLocation=$at/state
SlurmdSpoolDir=$at/spool/%n
SlurmctldPidFile=$at/slurmctld.pid
SlurmdPidFile=$at/slurmd-%n.pid
SlurmctldLogFile=$at/log/slurmctld.log
SlurmdLogFile=$at/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
PriorityType=priority/multifactor
PriorityWeightAge=1000
PriorityWeightPartition=1000
ReturnToService=2
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=$accounts_port
AccountingStoragePass=$at/munge.socket
SlurmdParameters=config_overrides
MaxJobCount=$max_jobs
MaxTasksPerNode=1000
${slurm_more:-}
END
    node_lines
    cat <<END
PartitionName=debug Nodes=n[1-$in_debug] DefMemPerCPU=100 Default=YES MaxTime=INFINITE State=UP
PartitionName=long Nodes=n[1-$nodes] DefMemPerCPU=100 MaxTime=2-00:00:00 DefaultTime=60 State=UP PriorityTier=2
END
  } >"$at/slurm.conf"
  export SLURM_CONF=$at/slurm.conf
  slurmdbd
  until_ok sacctmgr -n show cluster
  sacctmgr -i add cluster spur >/dev/null
  slurmctld -i
  for n in $(seq "$nodes"); do slurmd -N "n$n"; done
  until_ok all_idle sinfo
  unset SLURM_CONF
}

all_idle() { [ "$("$1" -hN -o '%N %t' | sort -u | grep -c ' idle$')" = "$nodes" ]; }

start_spur() {
  local at=$WORK/spur
  mkdir -p "$at"/{bin,spool}
  {
    cat <<END
cluster_name = "spur"
[controller]
listen_addr = "127.0.0.1:$spur_port"
state = "sqlite://$at/spur.db"
max_job_count = $max_jobs
[auth]
method = "$auth"
key_file = "$at/cluster.key"
socket = "$at/auth.sock"
[agent]
listen_addr = "127.0.0.1:$((spur_port + 10))"
spool_dir = "$at/spool/%n"
[scheduler]
priority_weight_age = 1000
priority_weight_partition = 1000
${spur_more:-}
default_qos = "normal"
[[qos]]
name = "normal"
END
    for n in $(seq "$nodes"); do
      echo "[[nodes]]"
      echo "names = \"n$n\""
      printf 'sockets = 1\ncores_per_socket = %d\nthreads_per_core = 1\nmemory_mb = %d\ntmp_disk_mb = 1000\nport = %d\n' "$cpus" "$memory" $((spur_port + 10 + n))
      [ -n "${feature[$n]:-}" ] && printf 'features = ["%s"]\n' "${feature[$n]//,/\", \"}"
    done
    cat <<END
[[partitions]]
name = "debug"
def_mem_per_cpu = "100M"
nodes = "n[1-$in_debug]"
default = true
[[partitions]]
name = "long"
def_mem_per_cpu = "100M"
nodes = "n[1-$nodes]"
max_time = "2-00:00:00"
default_time = "60"
priority_tier = 2
END
  } >"$at/spur.toml"
  export SPUR_CONF=$at/spur.toml
  install "$SPUR/spur" "$at/bin/spur"
  "$at/bin/spur" links "$at/bin" >/dev/null
  [ "$auth" = none ] || "$SPUR/spur" keygen "$at/cluster.key"
  "$SPUR/spurctld" -D >"$at/spurctld.log" 2>&1 &
  pids+=($!)
  for n in $(seq "$nodes"); do
    "$SPUR/spurd" -D -N "n$n" --cpus "$cpus" --memory "$memory" >"$at/spurd-n$n.log" 2>&1 &
    pids+=($!)
  done
  until_ok all_idle "$at/bin/sinfo"
  unset SPUR_CONF
}
