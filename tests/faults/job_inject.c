/* What happens to ranks from outside: to their sockets, and to the network between their hosts. */
#include "tests/faults/job_internal.h"
#include "tests/faults/sockets.h"

#include "core/clock.h"

#include <signal.h>

#define SOCKETS_MS 300 /* for a socket to appear between two ranks */

static uint32_t hosts_of(const struct scenario *s, uint32_t ranks)
{
	uint32_t hosts = 0;

	for (int r = 0; r < s->ranks; r++)
		if (ranks >> r & 1)
			hosts |= 1u << scenario_host(s, r);
	return hosts;
}

/* What TUTTI_RECONNECT says; but a meeting, which is where ranks are in tutti_init and
 * tutti_comm_grow, is not made again, and neither is what verbs and ucx have beside their own.
 */
static bool reconnects(const struct scenario *s, const struct fault *f,
		       const struct broken_socket *socket)
{
	return s->way != WAY_VERBS && s->way != WAY_UCX && f->kind == KIND_RESET &&
	       f->point != POINT_INIT && f->point != POINT_GROW && s->reconnect != 0 &&
	       (s->reconnect == 2 || !socket->is_of_loopback);
}

/* true: done, or never to be. */
static bool reset_sockets(struct job *job, const struct fault *f, uint64_t due_ns, uint64_t now)
{
	uint64_t random = job->s->seed * 31 + f->after_ns[0];
	struct broken_socket socket;

	switch (sockets_break(job->running, scenario_seats(job->s), f->kind == KIND_RESET, random,
			      &socket)) {
	case BROKEN_ONE:
		job->truth.broken_ns = now;
		job->truth.ends = socket.ends;
		job->truth.reconnects = reconnects(job->s, f, &socket);
		job->has_happened = true;
		return true;
	case BROKEN_REFUSED:
		job->skipped =
			"breaking the sockets of other processes needs root or ptrace_scope 0 or 1";
		return true;
	default:
		return now > due_ns + SOCKETS_MS * 1000000u;
	}
}

static bool inject(struct job *job, const struct fault *f, uint64_t due_ns)
{
	uint32_t hosts = hosts_of(job->s, f->victims);
	uint64_t now = clock_now_ns();

	if (f->kind == KIND_CLOSE || f->kind == KIND_RESET)
		return reset_sockets(job, f, due_ns, now);
	job->has_happened = true;
	if (f->kind == KIND_LOSS) {
		atomic_store(&job->board->wire.delay_us, f->delay_us);
		atomic_store(&job->board->wire.loss_permille, f->loss_permille);
	} else if (f->kind == KIND_CUT) {
		job->truth.cut_ns = now;
		job->truth.side = f->victims;
		atomic_store(&job->board->wire.side, hosts);
	} else if (f->kind == KIND_FLAP) {
		job->up_host = __builtin_ctz(hosts);
		hosts_link(&job->hosts, job->up_host, false);
		job->up_ns = now + f->lasts_ms * UINT64_C(1000000);
	} else if (f->kind == KIND_VANISH) {
		atomic_store(&job->board->wire.down, hosts);
		for (int r = 0; r < job->s->ranks; r++)
			if (f->victims >> r & 1) {
				job->truth.dead_ns[r] = job->truth.silent_ns[r] = now;
				job->truth.is_unproved[r] = true;
			}
		job_signal(job, f->victims, SIGKILL);
	}
	return true;
}

void job_inject_due(struct job *job)
{
	for (int i = 0; i < job->s->fault_count; i++) {
		uint64_t due_ns = atomic_load(&job->board->requests[i].due_ns);
		if (atomic_load(&job->board->requests[i].state) != REQUEST_WANTED ||
		    clock_now_ns() < due_ns || !inject(job, &job->s->faults[i], due_ns))
			continue;
		atomic_store(&job->board->requests[i].state, REQUEST_DONE);
	}
	if (job->up_ns && clock_now_ns() >= job->up_ns) {
		hosts_link(&job->hosts, job->up_host, true);
		job->up_ns = 0;
	}
}
