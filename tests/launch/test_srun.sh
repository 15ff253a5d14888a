#!/usr/bin/env bash
# slow: 5 s
# What would break: ranks that Slurm's srun starts on two nodes, n1 and n2, with a slurmctld and two slurmd of the test's own.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
PATH=$PATH:/usr/sbin:/sbin
needs Slurm srun sinfo slurmctld slurmd
. "$SOURCE_DIR/tests/launch/two_hosts.sh"

mkdir state spool.n1 spool.n2 tmp.n1 tmp.n2
echo 'CgroupPlugin=cgroup/v1' >cgroup.conf # it makes none, and needs none to be there
export SLURM_CONF=$scratch/slurm.conf
cat >slurm.conf <<END
ClusterName=tutti
SlurmctldHost=n1
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
SelectType=select/linear
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool.%n
TmpFS=$scratch/tmp.%n
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.%n.pid
SlurmctldLogFile=$scratch/slurmctld.log
SlurmdLogFile=$scratch/slurmd.%n.log
NodeName=n[1-2] CPUs=2
PartitionName=all Nodes=n1,n2 Default=YES
END
slurmctld -D -c >/dev/null 2>&1 & daemons=$!
slurmd -D -N n1 >/dev/null 2>&1 & daemons+=" $!"
$on_n2 slurmd -D -N n2 >/dev/null 2>&1 & daemons+=" $!"
trap 'kill $daemons $second; wait; rm -rf "$scratch"' EXIT
for _ in $(seq 600); do
	[ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && break
	sleep 0.05
done
[ "$(sinfo -h -o %T)" = idle ] || { complain "the nodes do not come up: $(tail -n 3 slurm*.log)"; exit 1; }

srun="$limit srun -N 2 -n 4 --overcommit"
export TUTTI_SECRET=ours
for way in none pmi2 pmix; do # Debian's pmix needs libpmix-dev
	srun --mpi=list 2>&1 | grep -qw $way || continue
	expect 0 $srun --mpi=$way "$program"
	four
done
# shellcheck disable=SC2016
two_each $srun sh -c 'echo $SLURMD_NODENAME'
# tuttirun on each node, whose ranks are its own.
# shellcheck disable=SC2016
expect 0 $limit srun -N 2 -n 2 --overcommit sh -c 'exec "$0" -n 2 --nnodes 2 --node-rank $SLURM_NODEID --master n1:29900 "$1"' \
	"$BUILD_DIR/launch/tuttirun" "$program"
four
exit $failures
