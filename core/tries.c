/* See tries.h. */
#include "core/tries.h"

#include <errno.h>
#include <stdio.h>

enum tried tried_of(int error)
{
	switch (error) {
	case ETIMEDOUT:
		return TRIED_SILENT;
	case ECONNREFUSED:
		return TRIED_REFUSED;
	case ECONNRESET:
	case ECONNABORTED:
	case EPIPE:
	case ENOTCONN:
		return TRIED_HUNG_UP;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
	case ENONET:
	case EADDRNOTAVAIL:
	case EAFNOSUPPORT:
	case ENODEV: /* this and EINVAL: a link-local address without a valid scope */
	case EINVAL:
		return TRIED_UNREACHABLE;
	case EADDRINUSE:
		return TRIED_TAKEN;
	default:
		return TRIED_DENIED;
	}
}

void tries_add(struct tries *t, enum tried end, int error, const char *why)
{
	int before = errno;

	if (t->count == 0 || end > t->most) {
		t->most = end;
		t->error = error;
		snprintf(t->why, sizeof t->why, "%s", why);
	}
	t->count++;
	t->ended[end]++;
	errno = before;
}

const char *tries_text(const struct tries *t, char *text, size_t bytes)
{
	static const char *const names[TRIED_ENDS] = {
		[TRIED_UNREACHABLE] = "no route", [TRIED_UNRESOLVED] = "unknown name",
		[TRIED_SILENT] = "no answer",     [TRIED_REFUSED] = "refused",
		[TRIED_HUNG_UP] = "hung up",      [TRIED_OTHER_SECRET] = "another secret",
		[TRIED_TAKEN] = "port taken",     [TRIED_OTHER_MEETING] = "another meeting",
		[TRIED_DENIED] = "denied",
	};
	const char *separator = ":";
	size_t used = (size_t)snprintf(text, bytes, "%s", t->why);

	if (t->count > 1 && used < bytes)
		used += (size_t)snprintf(text + used, bytes - used, "; %d tries", t->count);
	for (int end = TRIED_ENDS - 1; end >= 0 && t->count > 1 && used < bytes; end--) {
		if (!t->ended[end])
			continue;
		used += (size_t)snprintf(text + used, bytes - used, "%s %d %s", separator,
					 t->ended[end], names[end]);
		separator = ",";
	}
	return text;
}
