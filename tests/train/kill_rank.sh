# What tests that kill ranks share. To be sourced.

# kill_rank JOB NUMBER PROGRAM: the launcher's processes without its guard are the ranks, in any order.
kill_rank()
{
	local launcher ranks=() child

	launcher=$(cat "/proc/$1/task/$1/children") # timeout's
	for child in $(cat /proc/${launcher% }/task/${launcher% }/children); do
		[ "$(cat "/proc/$child/comm")" = "$3" ] && ranks+=("$child")
	done
	[ ${#ranks[@]} -gt 0 ] && kill -9 "${ranks[$2 % ${#ranks[@]}]}"
}

# kill_number JOB RANK: the rank of this number. By the shell alone, since steps are short.
kill_number()
{
	local launcher children child variables

	read -r launcher <"/proc/$1/task/$1/children"
	read -r -a children <"/proc/$launcher/task/$launcher/children"
	for child in "${children[@]}"; do
		mapfile -d '' -t variables <"/proc/$child/environ"
		[[ " ${variables[*]} " == *" RANK=$2 "* ]] && kill -9 "$child"
	done
}
