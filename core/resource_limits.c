/* The limits behind EMFILE, ENFILE, ENOMEM and EFBIG. Where several may have been met, the one that
 * is set is named. */
#include "core/resource_limits.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>

static bool resource_limits_is_limited(int resource, unsigned long long *most)
{
	struct rlimit limit;

	if (getrlimit((__rlimit_resource_t)resource, &limit) != 0 ||
	    limit.rlim_cur == RLIM_INFINITY)
		return false;
	*most = limit.rlim_cur;
	return true;
}

static void resource_limits_no_memory(char text[RESOURCE_LIMIT_BYTES])
{
	unsigned long long most;

	if (resource_limits_is_limited(RLIMIT_AS, &most))
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; this process may map %llu bytes in all: raise `ulimit -v`", most);
	else if (resource_limits_is_limited(RLIMIT_DATA, &most))
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; this process may have %llu bytes of data: raise `ulimit -d`", most);
	else
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; ask for less, or see vm.overcommit_memory and vm.max_map_count");
}

const char *resource_limit_text(int error, char text[RESOURCE_LIMIT_BYTES])
{
	unsigned long long most;

	text[0] = '\0';
	if (error == EMFILE && resource_limits_is_limited(RLIMIT_NOFILE, &most))
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; this process may have %llu open: raise `ulimit -n`", most);
	else if (error == ENFILE)
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; the whole machine has no more: raise fs.file-max");
	else if (error == EFBIG && resource_limits_is_limited(RLIMIT_FSIZE, &most))
		snprintf(text, RESOURCE_LIMIT_BYTES,
			 "; this process may make files of %llu bytes: raise `ulimit -f`", most);
	else if (error == ENOMEM)
		resource_limits_no_memory(text);
	return text;
}
