#!/usr/bin/env bash
# slow: 15 s
# What would break: jobs on several machines by ssh: sshd here, on two addresses, with a key and a port of its own.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
PATH=$PATH:/usr/sbin:/sbin
needs "the OpenSSH server" sshd ssh ssh-keygen
port
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f key
cat >sshd_config <<END
ListenAddress 127.0.0.1:$port
ListenAddress 127.0.0.2:$port
HostKey $scratch/host_key
AuthorizedKeysFile $scratch/key.pub
PidFile none
StrictModes no
UsePAM no
SetEnv HOME=$scratch
END
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd # sshd wants it
"$(command -v sshd)" -D -e -f sshd_config 2>sshd.log & server=$!
trap 'kill $server; rm -rf "$scratch"' EXIT
ssh="ssh -F none -i $scratch/key -p $port -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
for _ in $(seq 600); do
	$ssh 127.0.0.2 true 2>ssh.log && break
	sleep 0.05
done
$ssh 127.0.0.2 true || { complain "no session: $(cat sshd.log ssh.log)"; exit 1; }
. "$SOURCE_DIR/tests/launch/hosts.sh"

# ---- no key: what ssh says, and no question
expect 255 timeout -k 5 60 "$tuttirun" -n 1 --hosts 127.0.0.1 --ssh "${ssh/-i $scratch\/key/-i $scratch\/host_key}" true
said "Permission denied"
exit $failures
