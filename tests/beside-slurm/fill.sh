# Fills a cluster of Slurm's with a policy tree and two hundred jobs of several users, accounts and ends, and writes the files that
# `spur import slurm` reads. Sourced by `migrate`, after clusters.sh.

# The users: accounts of the system that every Debian has.
people=(daemon bin sys games man lp mail news)

# The policy tree: nested accounts, shares, QOS with limits and flags, and a coordinator.
fill_tree() {
  sacctmgr -i add qos high Priority=100 MaxJobsPU=4 Flags=DenyOnLimit
  sacctmgr -i add qos scavenger Priority=0 UsageFactor=0.5 Flags=NoReserve MaxTRESPU=cpu=6 MaxWall=1-00:00:00 GrpTRES=cpu=200,mem=100G
  sacctmgr -i add qos debug MaxWall=30 MaxSubmitJobsPU=20 Preempt=scavenger GraceTime=30
  sacctmgr -i add account sci Description="natural sciences" Organization=uni Fairshare=60
  sacctmgr -i add account arts Description="arts: music & film" Organization=uni Fairshare=40 GrpTRES=cpu=300
  sacctmgr -i add account phys,chem parent=sci Fairshare=3
  sacctmgr -i modify account chem set GrpJobs=100 MaxWall=2-00:00:00 GrpTRESMins=cpu=900000
  sacctmgr -i add user daemon,bin account=phys Fairshare=2 qos=normal,high,debug
  sacctmgr -i add user sys account=phys Fairshare=parent
  sacctmgr -i add user games,man account=chem MaxJobs=30 qos+=scavenger
  sacctmgr -i add user lp account=arts Fairshare=5 MaxSubmitJobs=500 qos=normal,scavenger DefaultQOS=normal
  sacctmgr -i add user mail,news account=arts
  sacctmgr -i add user games account=phys
  sacctmgr -i add user mail account=sci partition=long
  sacctmgr -i add coordinator account=sci names=daemon
  sacctmgr -i modify user daemon set AdminLevel=Operator
}

# submit USER ACCOUNT OPTION…
submit() {
  local user=$1 account=$2
  shift 2
  sbatch --parsable --uid="$user" --gid="$(id -g "$user")" -D /tmp -o /dev/null -A "$account" "$@"
}

# A hundred and fifty jobs in rounds, then the unusual ones.
fill_jobs() {
  local round user account id
  submit bin phys -J slow -t 1 -n 1 --wrap "sleep 200" >/dev/null
  submit man chem -J slow -t 1 -n 2 --wrap "srun sleep 200" >/dev/null
  local requeued
  requeued=$(submit games chem -J again --requeue -n 1 --wrap 'sleep $((SLURM_RESTART_COUNT ? 1 : 300))')
  for round in $(seq 15); do
    submit daemon phys -J "run$round" -n 1 --mem-per-cpu=50 --wrap "srun -n1 hostname; srun -n1 true" >/dev/null
    submit bin phys -J "wide$round" -N 2 -n 4 --comment "round $round" --wrap "srun -n4 true" >/dev/null
    submit games chem -J "fails$round" -n 2 --wrap "srun -n2 false; exit $round" >/dev/null
    submit games phys -p long -J "long$round" -n 1 -t 1-12:00:00 --wrap "true" >/dev/null
    submit man chem -J "scav$round" -q scavenger -c 2 --wrap "sleep 2" >/dev/null
    submit lp arts -J "film$round" -n 3 --mem=200 -L matlab:1 --wrap "srun -n1 sleep 1; srun -n1 kill -9 \$\$" >/dev/null
    submit mail arts -J "mix$round" -q normal -n 1 -C a --wrap "exit 3" >/dev/null
    submit news arts -J "news$round" -n 1 -t 5 --wrap "true" >/dev/null
    submit sys phys -J "steps$round" -n 2 --wrap "srun -n1 -J one true; srun -n2 -J two false; true" >/dev/null
    id=$(submit mail sci -p long -J "waits$round" -N "$nodes" --exclusive --wrap true) && scancel "$id"
  done
  submit daemon phys -J array -a 0-29%10 -n 1 --wrap 'exit $((SLURM_ARRAY_TASK_ID % 3))' >/dev/null
  submit news arts -J evens -a 2-20:2 -n 1 --wrap 'srun true' >/dev/null
  submit lp arts -J many -q scavenger -a 1-20 -n 1 --wrap 'true' >/dev/null
  submit daemon phys -J highs -q high -n 1 --wrap 'true' >/dev/null
  submit bin phys -J 'bar|bell' -n 1 --comment 'a|b: "c"' --wrap 'true' >/dev/null
  (cd /tmp && sbatch --parsable --uid=bin --gid="$(id -g bin)" -A phys -o /dev/null -J pair -n 1 : -n 2 --wrap 'srun true' >/dev/null)
  id=$(submit news arts -J stopped -n 1 --wrap "sleep 300")
  until_ok eval '[ "$(squeue -hj '"$id"' -o %T)" = RUNNING ]' && scancel "$id"
  until_ok eval '[ "$(squeue -hj '"$requeued"' -o %T)" = RUNNING ]' && scontrol requeue "$requeued"
  until_quiet
  sacctmgr -i modify job where jobid="$requeued" set admincomment="requeued once" >/dev/null
}

# Waits until no job is left, at most ten minutes.
until_quiet() { for _ in $(seq 10); do until_ok eval '[ -z "$(squeue -h)" ]' 2>/dev/null && return; done; echo "jobs are left" >&2; return 1; }

# The columns of sacct that `spur import slurm --history` reads.
history_columns=JobID,JobIDRaw,JobName,User,UID,Group,GID,Account,Partition,QOS,WCKey,Reservation,State,Reason,ExitCode,DerivedExitCode
history_columns+=,Submit,Eligible,Start,End,Suspended,TimelimitRaw,Priority,ReqNodes,ReqCPUS,ReqMem,ReqTRES,AllocNodes,AllocCPUS,AllocTRES
history_columns+=,NTasks,NodeList,Layout,Constraints,UserCPU,SystemCPU,TRESUsageInAve,TRESUsageInMax,TRESUsageInMaxNode,TRESUsageInMaxTask
history_columns+=,TRESUsageInMin,TRESUsageInMinNode,TRESUsageInMinTask,TRESUsageInTot,TRESUsageOutAve,TRESUsageOutMax,TRESUsageOutMaxNode
history_columns+=,TRESUsageOutMaxTask,TRESUsageOutMin,TRESUsageOutMinNode,TRESUsageOutMinTask,TRESUsageOutTot,WorkDir,SubmitLine,Comment,AdminComment,SystemComment

# write_files DIRECTORY: the four files, as the guide says.
write_files() {
  sacctmgr show qos -P >"$1/qos.txt"
  (cd "$1" && sacctmgr dump spur file=tree.cfg >/dev/null 2>&1)
  sshare -l -a -m -P >"$1/usage.txt"
  SLURM_TIME_FORMAT=%s sacct -a -D -P --noconvert --delimiter=$'\x1f' -S 2000-01-01 -E now -o "$history_columns" >"$1/history.txt"
}
