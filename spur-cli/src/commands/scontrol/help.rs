//! Text of `scontrol help` after the options.

pub(super) const COMMANDS: &str = "\
  <COMMAND> may be left out: scontrol then asks for one line after another, until exit, quit or the end of its
  input; !! is the last one again.

    Valid <COMMAND> values are:
    hold JOBS                       keep jobs from starting
    uhold JOBS, holdu JOBS          the same, and their owners may release them
    release JOBS                    undo hold
    requeue JOBS                    put running or ended jobs back into the queue
    requeuehold JOBS                the same, held
    suspend JOBS                    stop running jobs; others may have their CPUs, not their memory or devices
    resume JOBS                     let them go on, as soon as their CPUs are free
    top JOBS                        before all other jobs of the same user, partition, account and QOS
    wait_job JOB                    wait until the nodes of a job are ready for use
    notify JOB MESSAGE              say something in the standard error of a batch script, or of who holds an allocation
    update JobId=JOBS KEY=VALUE …   change jobs, all keys at once
    update NodeName=NODES …         State=DOWN|DRAIN|RESUME|UNDRAIN|CANCEL_REBOOT|POWER_UP|POWER_DOWN[_ASAP|_FORCE]
                                    Reason= Weight= Features= Gres= Comment= Extra= Topology= Foreign=END
    update PartitionName=NAME …     State=UP|DOWN|DRAIN|INACTIVE MaxTime= Nodes= (also += and -=) Default= AllowAccounts= …
    create PartitionName=NAME …     a partition, with the same keys; it stays until it is deleted
    create NodeName=NODES State=CLOUD …
                                    nodes that are not in the configuration: CPUs= RealMemory= Gres= Features= Topology= …
    delete PartitionName=NAME, delete NodeName=NODES
    create reservation KEY=VALUE …  ReservationName= StartTime= EndTime=|Duration= Nodes=|NodeCnt= PartitionName=
                                    Licenses= Features= Users= Accounts= Flags= Comment=
    update ReservationName=NAME …   the same keys; Duration, Nodes, Users, Accounts and Flags also with += and -=
    update FeatureLevel=N           let the cluster use what level N has added, once all daemons know it; no way back
    delete ReservationName=NAME     end a reservation; jobs that wait for it are held
    show job|node|partition|reservation|step|license [NAMES]
    listpids JOB[.STEP] [NODE]      processes of running steps, on one node or on all
    pidinfo PID                     the job that a process of this host belongs to
    completing                      jobs that have ended and still hold nodes
    show topology [NAME] [unit=NAME] [node=NODES]
    show config
    show assoc_mgr [qos=NAMES] [flags=users|assoc|qos]
    show hostnames [LIST]           names, one on a line; by default those of the job
    show hostlist|hostlistsorted [LIST]
    show aliases [HOST]             the nodes whose daemons run on that host
    show daemons                    the daemons that belong on this host
    show slurmd [NODE]              the daemon of this host's node
    write batch_script JOB [FILE]   write a job's script; - is the standard output
    ping                            whether the controller is there; also with --json
    reboot [ASAP] [nextstate=RESUME|DOWN] [reason=WHY] ALL|NODES
                                    boot nodes when their jobs have ended; with ASAP they get no others before
    cancel_reboot NODES             not after all, where that has not begun
    reconfigure                     read the configuration again
    shutdown [controller|slurmctld] end the controller and the daemons of the nodes, or it alone; jobs go on
    takeover [INDEX]                end the controller in charge, so that another takes over
    setdebug LEVEL                  how much the controller logs until it starts again: error, info, debug, debug2 …
    setdebugflags [+|-]FLAG         of what it logs more: Agent, Backfill, Protocol, …
    schedloglevel 0|1               whether it logs what the planner does
    errnumstr NUMBER                the words for an error's number
    cluster [NAME]                  this cluster, for there is no other
    version                         show the version
    help                            show this
    all, hide, details, oneliner, quiet, verbose
                                    between commands: as the options of these names; exit and quit end it

  JOBS are ids with commas or blanks between: 12 13_2 14_[1-4]; those that are held and the like also jobname=NAME. Words may
  be cut where no other begins like them. abort, fsdampeningfactor and token are not supported.
";
