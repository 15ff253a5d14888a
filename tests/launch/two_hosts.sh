# Two hosts, n1 and n2, on this machine: network namespaces with names of their own and a link between them. To be sourced after
# launchers.sh by a test that does nothing else before: it starts it again on n1. $second is a process on n2, and ./rsh [OPTIONS]
# HOST COMMAND... runs a command there, as ssh does.
needs iproute2 ip
if [ "${1-}" != inside ]; then
	printf '127.0.0.1 localhost\n10.77.0.1 n1\n10.77.0.2 n2\n' >hosts
	if ! unshare -mnu sh -c 'mount --bind hosts /etc/hosts && ip link add n1 type veth peer name n2' 2>err; then
		echo "hosts with networks of their own need root and veth: $(tail -n 1 err)"
		exit 77
	fi
	unshare -mnu bash "$SOURCE_DIR/tests/launch/${0##*/}" inside "$PWD/hosts"
	exit
fi
mount --bind "$2" /etc/hosts
hostname n1
unshare -nu sleep 1000 & second=$!
trap 'kill $second; rm -rf "$scratch"' EXIT
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
ip link add n1 type veth peer name n2 netns $second
on_n2="nsenter -t $second -n -u"
$on_n2 hostname n2
for host in 1 2; do
	on=
	[ $host = 1 ] || on=$on_n2
	$on ip addr add 10.77.0.$host/24 dev n$host
	$on ip link set n$host up
	$on ip link set lo up
done
cat >rsh <<END
#!/bin/sh
while :; do
	case \$1 in
	-o) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
host=\$1
shift
[ "\$host" = n2 ] || exec sh -c "\$*"
exec $on_n2 sh -c "\$*"
END
chmod +x rsh

# two_each COMMAND...: it prints the name of the host on each host twice.
two_each()
{
	expect 0 "$@"
	[ "$(sort out | uniq -c | tr -s ' \n' ' ')" = ' 2 n1 2 n2 ' ] || complain "two hosts with two ranks each: $(cat out)"
}
