/* Joining, rounds and verdicts. */
#include "core/join/meeting.h"

#include "core/clock.h"
#include "core/rank_list.h"
#include "core/join/frame.h"
#include "core/join/launcher.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOW_IT_LEFT 80

tutti_status meeting_init(struct meeting *m, int size, uint64_t deadline_ns)
{
	*m = (struct meeting){.size = size, .has_tls = -1, .deadline_ns = deadline_ns};
	m->seats = calloc((size_t)(size ? size : WORLD_MAX), 1);
	if (!m->seats)
		return fail(TUTTI_ERR_MEMORY, "no memory for a meeting of %d ranks", size);
	return TUTTI_OK;
}

void meeting_finish(struct meeting *m)
{
	free(m->seats);
	free(m->gather);
	free(m->answer);
}

void meeting_fail(struct meeting *m, tutti_status status, const char *format, ...)
{
	va_list args;

	if (m->status != TUTTI_OK)
		return; /* the first failure is the one to know */
	m->status = status;
	va_start(args, format);
	vsnprintf(m->error, sizeof m->error, format, args);
	va_end(args);
}

static void meeting_earlier(struct meeting *m, uint64_t deadline_ns)
{
	if (deadline_ns < m->deadline_ns)
		m->deadline_ns = deadline_ns;
}

bool meeting_compare_local_ranks(struct meeting *m, int rank, int local_ranks)
{
	if (m->status != TUTTI_OK)
		return false;
	if (m->local_ranks == 0) {
		m->local_ranks = local_ranks;
		m->local_said_by = rank;
	}
	if (local_ranks == 0 || local_ranks == m->local_ranks)
		return true;
	m->sizes_differ = true;
	meeting_fail(m, TUTTI_ERR_MISMATCH,
		     "process %d makes %d rank%s of the job, process %d makes %d "
		     "(config.local_ranks of tutti_init_all): all processes need the same",
		     rank / local_ranks, local_ranks, local_ranks == 1 ? "" : "s",
		     m->local_said_by / m->local_ranks, m->local_ranks);
	return false;
}

/* The beginning of a message: how rank left. text has HOW_IT_LEFT bytes. Returns it. */
static const char *meeting_how_it_left(char *text, int rank, bool said_bye)
{
	snprintf(text, HOW_IT_LEFT,
		 said_bye ? "rank %d left" : "the connection to rank %d was lost (has it died?)",
		 rank);
	return text;
}

/* Not all will join, or one of those that have joined has left before they knew. */
static void meeting_fail_left(struct meeting *m, int rank)
{
	char how[HOW_IT_LEFT];

	meeting_fail(m, TUTTI_ERR_PEER, "%s while the %d ranks of the job were joining",
		     meeting_how_it_left(how, rank, m->seats[rank] == SEAT_LEFT), m->size);
}

bool meeting_join(struct meeting *m, int rank, int size, uint64_t deadline_ns)
{
	if (m->status != TUTTI_OK)
		return false;
	if (size < 1 || size > WORLD_MAX || rank < 0 || rank >= size) {
		meeting_fail(m, TUTTI_ERR_INVALID,
			     "a process says it is rank %d of %d: ranks count from 0", rank, size);
		return false;
	}
	if (m->size == 0) {
		m->size = size;
		m->size_said_by = rank;
	}
	if (size != m->size) {
		m->sizes_differ = true;
		meeting_fail(m, TUTTI_ERR_MISMATCH,
			     "rank %d says the world has %d ranks, rank %d says %d: all ranks need "
			     "the same",
			     rank, size, m->size_said_by, m->size);
		return false;
	}
	if (m->seats[rank] >= SEAT_LEFT) {
		meeting_fail_left(m, rank);
		return false;
	}
	if (m->seats[rank] != SEAT_EMPTY) {
		meeting_fail(m, TUTTI_ERR_MISMATCH,
			     "two processes say they are rank %d of %d: each rank is started once",
			     rank, size);
		return false;
	}
	m->seats[rank] = SEAT_TAKEN;
	meeting_earlier(m, deadline_ns);
	if (++m->joined == m->size) {
		m->is_complete = true;
		m->deadline_ns = DEADLINE_NONE;
	}
	return true;
}

void meeting_compare_hosts(struct meeting *m, int rank, uint32_t hosts)
{
	if (m->hosts == 0) {
		m->hosts = hosts;
		m->hosts_said_by = rank;
	}
	if (hosts != 0 && hosts != m->hosts)
		meeting_fail(m, TUTTI_ERR_MISMATCH,
			     "rank %d and rank %d have different lists of the job's %d hosts (the "
			     "cluster in "
			     "TF_CONFIG): all ranks need the same",
			     rank, m->hosts_said_by, m->size);
}

void meeting_compare_tls(struct meeting *m, int rank, bool has_tls)
{
	if (m->has_tls < 0) {
		m->has_tls = has_tls;
		m->tls_said_by = rank;
	}
	if (has_tls != m->has_tls)
		meeting_fail(m, TUTTI_ERR_INVALID,
			     "rank %d has TUTTI_TLS %d, rank %d has %d: all ranks need the same",
			     rank, has_tls, m->tls_said_by, m->has_tls);
}

/* The round's first record says how long all are. */
static bool meeting_open_round(struct meeting *m, int rank, size_t bytes)
{
	size_t all = bytes * (size_t)m->size;

	if (bytes > RECORD_MAX || all > ANSWER_MAX) {
		meeting_fail(m, TUTTI_ERR_INVALID,
			     "rank %d gave %zu bytes to a round of %d ranks: that is too much",
			     rank, bytes, m->size);
		return false;
	}
	m->gather = malloc(all ? all : 1);
	if (!m->gather) {
		meeting_fail(m, TUTTI_ERR_MEMORY,
			     "the meeting has no memory for a round of %d times %zu bytes", m->size,
			     bytes);
		return false;
	}
	m->record_bytes = bytes;
	m->bytes_said_by = rank;
	return true;
}

/* A round cannot be completed without the ranks that have left. */
static void meeting_check_presence(struct meeting *m)
{
	char how[HOW_IT_LEFT];
	int first = 0;

	if (!m->gather || m->left == 0)
		return;
	while (m->seats[first] < SEAT_LEFT)
		first++;
	meeting_fail(m, TUTTI_ERR_PEER,
		     "%s while the other ranks still exchange what joining needs",
		     meeting_how_it_left(how, first, m->seats[first] == SEAT_LEFT));
}

uint8_t *meeting_record(struct meeting *m, int rank, size_t bytes, uint64_t deadline_ns)
{
	assert(m->is_complete && m->seats[rank] == SEAT_TAKEN);
	if (m->status != TUTTI_OK)
		return NULL;
	if (!m->gather && !meeting_open_round(m, rank, bytes))
		return NULL;
	if (bytes != m->record_bytes) {
		meeting_fail(m, TUTTI_ERR_MISMATCH,
			     "rank %d gave %zu bytes where rank %d gave %zu, in one round of "
			     "joining (have both the same version of Tutti?)",
			     rank, bytes, m->bytes_said_by, m->record_bytes);
		return NULL;
	}
	meeting_earlier(m, deadline_ns);
	meeting_check_presence(m);
	return m->status == TUTTI_OK ? m->gather + (size_t)rank * bytes : NULL;
}

bool meeting_gave(struct meeting *m, int rank)
{
	assert(m->gather && m->seats[rank] == SEAT_TAKEN);
	m->seats[rank] = SEAT_GAVE;
	if (m->status != TUTTI_OK || ++m->given < m->size)
		return false;
	memset(m->seats, SEAT_TAKEN, (size_t)m->size);
	free(m->answer);
	m->answer = m->gather;
	m->answer_bytes = m->record_bytes * (size_t)m->size;
	m->gather = NULL;
	m->given = 0;
	m->deadline_ns = DEADLINE_NONE;
	return true;
}

void meeting_leave(struct meeting *m, int rank, bool said_bye)
{
	char how[HOW_IT_LEFT];

	if (m->seats[rank] >= SEAT_LEFT)
		return;
	bool mid_round = m->seats[rank] == SEAT_GAVE;
	m->seats[rank] = said_bye ? SEAT_LEFT : SEAT_LOST;
	m->left++;
	if (!m->is_complete)
		meeting_fail_left(m, rank);
	else if (mid_round || (m->gather && !said_bye))
		meeting_fail(m, TUTTI_ERR_PEER, "%s while the ranks exchanged what joining needs",
			     meeting_how_it_left(how, rank, said_bye));
	else
		meeting_check_presence(m);
}

void meeting_count_unproved(struct meeting *m, const char *from)
{
	m->unproved++;
	snprintf(m->unproved_from, sizeof m->unproved_from, "%s", from);
}

/* Other programs may have made these connections, or ranks that failed: so they are no cause. */
static const char *meeting_about_unproved(const struct meeting *m, char *text, size_t bytes)
{
	bool is_one = m->unproved == 1;

	if (m->unproved == 0)
		return "";
	snprintf(text, bytes,
		 "; %llu connection%s ended without proving the job's secret%s%s (the other end "
		 "reports why: another secret, TUTTI_RESTARTED, or an error of its own)",
		 (unsigned long long)m->unproved, is_one ? "" : "s",
		 m->unproved_from[0] ? is_one ? ", from " : ", the last from " : "",
		 m->unproved_from);
	return text;
}

void meeting_tick(struct meeting *m, uint64_t now_ns)
{
	char missing[180], unproved[256];

	if (m->status != TUTTI_OK || now_ns < m->deadline_ns)
		return;
	if (m->size == 0) {
		meeting_fail(m, TUTTI_ERR_TIMEOUT,
			     "no rank came before the deadline: were the ranks started?");
		return;
	}
	meeting_list(m, m->is_complete ? SEAT_GAVE : SEAT_TAKEN, missing, sizeof missing);
	if (m->is_complete)
		meeting_fail(
			m, TUTTI_ERR_TIMEOUT,
			"the deadline passed while the %d ranks were joining: %s of them stopped "
			"answering",
			m->size, missing);
	else
		meeting_fail(m, TUTTI_ERR_TIMEOUT,
			     "the deadline passed before all %d ranks had joined: %s missing%s%s",
			     m->size, missing, meeting_about_unproved(m, unproved, sizeof unproved),
			     m->hint ? m->hint : "");
}

void meeting_list(const struct meeting *m, enum seat limit, char *text, size_t bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, bytes);
	for (int r = 0; r < m->size; r++)
		if (m->seats[r] < limit)
			rank_list_add(&list, r);
	rank_list_end(&list);
}
