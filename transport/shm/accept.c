/* Accepting connections, and making room for them. */
#include "transport/shm/shm.h"

#include "core/log.h"
#include "core/net.h"
#include "core/status.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS 16 /* in one look */

/* False: there is none. */
static bool shm_drop_oldest(struct shm_endpoint *endpoint)
{
	struct admission_entry *oldest = admission_oldest(&endpoint->pending, false);

	if (oldest)
		shm_accepted_drop(endpoint, shm_accepted_of(oldest));
	return oldest != NULL;
}

/* There is a spare one. A socket that epoll does not take (fs.epoll.max_user_watches) is pending
 * for a moment only: dialers say hello at once, and rings that can then not be watched say so. */
static void shm_add_pending(struct shm_endpoint *endpoint, int fd)
{
	struct shm_accepted *accepted = endpoint->spare;
	tutti_status status = net_unix_check(fd, NULL);

	if (status != TUTTI_OK) {
		log_seldom("shm: rank %d dropped a connection: %s", endpoint->rank, last_error());
		close(fd);
		if (status == TUTTI_ERR_SYSTEM)
			shm_connect_refuse_all(endpoint, last_error(), false);
		return;
	}
	endpoint->spare = NULL;
	while (!admission_has_room(&endpoint->pending))
		shm_drop_oldest(endpoint);
	accepted->watch = (struct shm_watch){.kind = SHM_ACCEPTED, .fd = fd};
	accepted->next = endpoint->accepted;
	endpoint->accepted = accepted;
	admission_add(&endpoint->pending, &accepted->pending);
	accepted->is_watched = shm_watch_add(endpoint, &accepted->watch) == TUTTI_OK;
	shm_accepted_event(endpoint, accepted);
}

/* Asked before a connection is accepted: a rank that is hung up on would take this rank for dead.
 */
static bool shm_has_room(struct shm_endpoint *endpoint)
{
	if (!endpoint->spare)
		endpoint->spare = calloc(1, sizeof *endpoint->spare);
	if (!endpoint->spare && net_has_caller(endpoint->listener.fd))
		shm_connect_refuse_all(endpoint, "there is no memory for it", false);
	return endpoint->spare != NULL;
}

static bool shm_accept_one(struct shm_endpoint *endpoint)
{
	int fd;

	if (!shm_has_room(endpoint))
		return false;
	fd = accept4(endpoint->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd >= 0)
		shm_add_pending(endpoint, fd);
	else if ((errno == EMFILE || errno == ENFILE) && net_has_caller(endpoint->listener.fd) &&
		 shm_drop_oldest(endpoint))
		return true; /* its descriptor will do */
	else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
		fail_errno("rank %d cannot accept connections (accept4)", endpoint->rank);
		log_seldom("shm: %s", last_error());
		shm_connect_refuse_all(endpoint, last_error(), false);
	}
	return fd >= 0;
}

void shm_accept_some(struct shm_endpoint *endpoint)
{
	for (int i = 0; i < ACCEPTS && shm_accept_one(endpoint); i++)
		continue;
}

void shm_accept_backlog(struct shm_endpoint *endpoint)
{
	for (int i = 0; i < SHM_BACKLOG && shm_accept_one(endpoint); i++)
		continue;
	for (struct shm_accepted *g = endpoint->accepted, *next; g; g = next) {
		next = g->next;
		if (!g->is_known)
			shm_accepted_event(endpoint, g);
	}
}

bool shm_accepted_look(struct shm_endpoint *endpoint)
{
	int before = endpoint->pending.count;

	for (struct shm_accepted *g = endpoint->accepted, *next; g; g = next) {
		next = g->next;
		if (!g->is_known && !g->is_watched)
			shm_accepted_event(endpoint, g);
	}
	return endpoint->pending.count != before;
}

bool shm_accepted_are_unwatched(const struct shm_endpoint *endpoint)
{
	const struct shm_accepted *g = endpoint->pending.count ? endpoint->accepted : NULL;

	while (g && (g->is_known || g->is_watched))
		g = g->next;
	return g != NULL;
}

bool shm_accepted_expire(struct shm_endpoint *endpoint, uint64_t now_ns)
{
	struct admission_entry *late;
	bool is_anything = false;

	while ((late = admission_late(&endpoint->pending, now_ns))) {
		log_seldom("shm: dropped a connection that said nothing");
		shm_accepted_drop(endpoint, shm_accepted_of(late));
		is_anything = true;
	}
	return is_anything;
}
