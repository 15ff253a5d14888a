/* Until a server has proved that it knows the job's key, whatever answers may be another
 * program, another job, this job's last meeting on its way out. Those are passed over. */
#include "core/join/find_server.h"

#include "core/net.h"
#include "core/cancel.h"
#include "core/long_wait.h"
#include "core/tries.h"
#include "core/join/secret.h"

#include <errno.h>
#include <netdb.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* How long one address may take to answer: at first, and after some rounds through all. */
#define ATTEMPT_MIN_MS 500
#define ATTEMPT_MAX_MS 8000

static uint64_t find_server_earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The rank that calls. */
static void find_server_put_name(uint8_t frame[FRAME_BYTES + FRAME_HELLO_BYTES],
				 const struct job *job, uint64_t deadline_ns)
{
	uint8_t *body = frame + FRAME_BYTES;
	uint64_t value = deadline_left_ms(deadline_ns) | (uint64_t)job->local_ranks << 32;

	frame_put(frame, (struct frame){FRAME_HELLO, FRAME_HELLO_BYTES, value});
	put_u32(body, FRAME_VERSION);
	put_u32(body + 4, (uint32_t)job->rank);
	put_u32(body + 8, (uint32_t)job->size);
	put_u32(body + 12, job->hosts);
}

/* other: the key of a meeting of the other kind; NULL if there is none. */
struct keys {
	const uint8_t *mine, *other;
};

/* AUTH: another key made the answer. MISMATCH: that of the other kind of meeting. */
static tutti_status find_server_check_answer(struct auth *auth, const struct keys *keys,
					     const uint8_t answer[AUTH_ANSWER_BYTES],
					     uint8_t proof[AUTH_PROOF_BYTES])
{
	struct auth other = *auth;
	tutti_status status = auth_check_answer(auth, answer, proof);

	if (status != TUTTI_ERR_AUTH || !keys->other)
		return status;
	memcpy(other.key, keys->other, sizeof other.key);
	if (auth_check_answer(&other, answer, proof) == TUTTI_OK)
		status = TUTTI_ERR_MISMATCH;
	sodium_memzero(&other, sizeof other);
	return status;
}

/* AUTH, MISMATCH: as find_server_check_answer, without a message. Other errors set one, and SYSTEM
 * errno. */
static tutti_status find_server_shake_hands(struct wire *w, const struct keys *keys,
					    const struct job *job, uint64_t attempt_ns,
					    uint64_t deadline_ns)
{
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	uint8_t reply[AUTH_PROOF_BYTES + FRAME_BYTES + FRAME_HELLO_BYTES] = {0};
	uint8_t *frame = reply + AUTH_PROOF_BYTES;
	bool is_secure = job->has_tls && !w->is_own;
	size_t first = is_secure ? AUTH_PROOF_BYTES : sizeof reply;
	struct auth auth;
	tutti_status status;

	wire_context(context, job->has_tls);
	auth_hello(&auth, keys->mine, context, hello);
	TRY(net_send_all(w->fd, hello, sizeof hello, attempt_ns));
	TRY(net_recv_all(w->fd, answer, sizeof answer, attempt_ns));
	if (memcmp(answer, auth_not_here, sizeof answer) == 0)
		return fail(TUTTI_ERR_PEER, "that is the port of a rank, not of a rendezvous");
	TRY(find_server_check_answer(&auth, keys, answer, reply));
	find_server_put_name(frame, job, deadline_ns);
	status = net_send_all(w->fd, reply, first, attempt_ns);
	if (status == TUTTI_OK && is_secure)
		status = wire_secure(w, &auth, attempt_ns);
	if (status == TUTTI_OK && is_secure)
		status = wire_send(w, frame, sizeof reply - first, attempt_ns);
	sodium_memzero(&auth, sizeof auth);
	if (status == TUTTI_ERR_PEER && is_secure)
		fail(status, "the other end closed the connection during the TLS handshake");
	/* The secret was proved before TLS began, so data changed on its way is no AUTH. */
	return status == TUTTI_ERR_AUTH ? TUTTI_ERR_PEER : status;
}

tutti_status find_server_own(struct wire *w, const uint8_t key[TUTTI_KEY_BYTES],
			     const struct job *job, uint64_t deadline_ns)
{
	struct keys keys = {key, NULL};
	tutti_status status = find_server_shake_hands(w, &keys, job, deadline_ns, deadline_ns);
	char why[ERROR_BYTES];

	if (status == TUTTI_OK)
		return TUTTI_OK;
	snprintf(why, sizeof why, "%s", last_error());
	return fail(status, "rank %d could not join its own meeting: %.400s", job->rank, why);
}

/* One rank's call of one meeting. All its hosts are addresses of one machine. */
struct call {
	struct dial *dial;
	const struct job *job;
	uint64_t attempt_ms, deadline_ns;
	tutti_status denied; /* not OK: this process cannot or must not try again */
	struct tries tries;  /* of this round                                     */
	bool is_dead;        /* the host does not answer a connect, at any port   */
};

/* Whether a failure of find_server_shake_hands is this process's own (a call is denied, or memory
 * is short), so that another try would fail, too. */
static bool find_server_is_denied(tutti_status status, int error)
{
	return status == TUTTI_ERR_SYSTEM
		       ? tried_of(error) == TRIED_DENIED
		       : status != TUTTI_ERR_PEER && status != TUTTI_ERR_TIMEOUT &&
				 status != TUTTI_ERR_AUTH && status != TUTTI_ERR_MISMATCH;
}

/* Records how find_server_shake_hands failed, with errno. Returns whether with TRIED_DENIED. */
static bool find_server_note_greeting(struct tries *tries, const struct job *job,
				      tutti_status status, const char *host, int port)
{
	const char *says = NULL;
	enum tried end = TRIED_HUNG_UP;
	int error = status == TUTTI_ERR_SYSTEM ? errno : 0;
	char why[ERROR_BYTES];

	if (status == TUTTI_ERR_AUTH) {
		end = TRIED_OTHER_SECRET;
		says = "cannot prove that it knows this rank's secret: it is another job, another "
		       "program, or the secrets differ";
	} else if (status == TUTTI_ERR_MISMATCH) {
		end = TRIED_OTHER_MEETING;
		says = job->is_growing
			       ? "knew the secret, but waited for the ranks of a job that begins, "
				 "not for those that join a running one (TUTTI_RESTARTED, "
				 "tutti_comm_grow)"
			       : "knows the secret, but calls tutti_comm_grow, which new ranks "
				 "join with TUTTI_RESTARTED=1";
	} else if (status == TUTTI_ERR_TIMEOUT) {
		end = TRIED_SILENT;
		says = "accepted the connection, but does not answer";
	} else if (find_server_is_denied(status, error)) {
		end = TRIED_DENIED;
	} else if (status == TUTTI_ERR_SYSTEM) {
		end = tried_of(error);
	}
	if (says)
		snprintf(why, sizeof why, "the process that listens at %.200s:%d %s", host, port,
			 says);
	else
		snprintf(why, sizeof why, "the connection to %.200s:%d: %.250s", host, port,
			 last_error());
	tries_add(tries, end, error, why);
	return end == TRIED_DENIED;
}

/* False: not connected; call->tries has the outcome. */
static bool find_server_dial_port(struct call *call, const struct addrinfo *addresses,
				  const char host[HOST_BYTES], int port, struct wire *w)
{
	uint64_t attempt_ns = find_server_earlier(deadline_after_ms((int64_t)call->attempt_ms),
						  call->deadline_ns);
	struct keys keys = {call->dial->key,
			    call->dial->has_other_key ? call->dial->other_key : NULL};
	tutti_status status = net_connect(addresses, host, port, attempt_ns, &w->fd);

	if (status != TUTTI_OK) {
		enum tried end = tried_of(errno);
		call->is_dead = end == TRIED_SILENT || end == TRIED_UNREACHABLE;
		tries_add(&call->tries, end, errno, last_error());
		call->denied = status == TUTTI_IN_PROGRESS ? TUTTI_OK : status;
		return false;
	}
	status = find_server_shake_hands(w, &keys, call->job, attempt_ns, call->deadline_ns);
	if (status == TUTTI_OK) {
		memcpy(call->dial->host, host, sizeof call->dial->host);
		call->dial->host_port = port;
		return true;
	}
	if (find_server_note_greeting(&call->tries, call->job, status, host, port))
		call->denied = status;
	wire_close(w);
	return false;
}

static bool find_server_is_late(const struct call *call)
{
	return clock_now_ns() >= cancel_deadline(call->deadline_ns);
}

/* A try after the deadline has no time to be answered. */
static bool find_server_may_try(const struct call *call)
{
	return call->denied == TUTTI_OK && (call->tries.count == 0 || !find_server_is_late(call));
}

/* The ports of one host, whose name is looked up once for all of them. */
static bool find_server_dial_host(struct call *call, const char host[HOST_BYTES], struct wire *w)
{
	const struct dial *dial = call->dial;
	struct addrinfo *addresses;
	tutti_status status = net_look_up(host, dial->port, 0, &addresses);
	bool is_found = false;

	if (status != TUTTI_OK) {
		enum tried end = tried_of(errno) == TRIED_DENIED ? TRIED_DENIED : TRIED_UNRESOLVED;
		tries_add(&call->tries, end, errno, last_error());
		call->denied = status == TUTTI_IN_PROGRESS ? TUTTI_OK : status;
		return false;
	}
	call->is_dead = false;
	for (int i = 0; i < dial->ports && dial->port + i <= 65535; i++) {
		/* Of a URL the next address may be the one that answers. */
		if (is_found || !find_server_may_try(call) || (call->is_dead && call->job->is_url))
			break;
		is_found = find_server_dial_port(call, addresses, host, dial->port + i, w);
	}
	freeaddrinfo(addresses);
	return is_found;
}

/* Tries each host once. IN_PROGRESS: call->tries has the outcomes. */
static tutti_status find_server_dial_all(struct call *call, struct wire *w)
{
	const char *list = call->dial->hosts;
	char host[HOST_BYTES];

	while (find_server_may_try(call) && place_next_host(&list, host))
		if (find_server_dial_host(call, host, w))
			return TUTTI_OK;
	return TUTTI_IN_PROGRESS;
}

static tutti_status find_server_find_by_file(struct dial *dial, const struct job *job)
{
	struct job there = {0};
	char url[URL_BYTES];
	tutti_status status = notice_read(job->path, !job->secret[0], url);

	if (status == TUTTI_OK)
		status = place_parse(&there, url);
	if (status == TUTTI_OK) {
		memcpy(dial->hosts, there.host, sizeof dial->hosts);
		dial->port = there.port;
		secret_key(dial->key, there.secret, job->secret, 0);
	}
	sodium_memzero(url, sizeof url);
	job_forget(&there);
	return status;
}

/* IN_PROGRESS: it cannot be known yet. */
static tutti_status find_server_find(struct dial *dial, const struct job *job,
				     const struct env *env, uint64_t deadline_ns)
{
	dial->ports = 1;
	dial->is_only = dial->has_other_key = false;
	if (job->meeting == JOB_FILE)
		return find_server_find_by_file(dial, job);
	memcpy(dial->hosts, job->host, sizeof dial->hosts);
	if (!secret_is_given(dial->key, job, env)) {
		TRY(secret_check_here(job));
		return secret_ask(job, deadline_ns, dial->key, &dial->port);
	}
	dial->has_other_key = !job->is_url;
	if (dial->has_other_key)
		secret_other_kind(dial->other_key, job);
	dial->port = job->port_is_taken ? job->port + 1 : job->port;
	dial->ports = job->port_is_taken ? PROBED_PORTS : 1;
	/* The system may have given a URL's port to another program since its first meeting. */
	if (job->is_url && job->is_growing)
		dial->ports = 1 + PROBED_PORTS;
	/* The job that is to grow may have its first meeting there still. */
	dial->is_only = dial->ports == 1 && !job->is_url && !job->is_growing;
	return TUTTI_OK;
}

/* Not one of those that grow, which know their server. */
static bool find_server_is_new(const struct job *job)
{
	return job->is_growing && job->server < 0;
}

static const char *find_server_missing_side(const struct job *job)
{
	return find_server_is_new(job) ? "a running job that calls tutti_comm_grow"
	       : job->is_served        ? "the process that called tutti_rendezvous_open"
	       : job->is_growing       ? "the rank that is to meet the new ones in tutti_comm_grow"
				       : "rank 0";
}

static void find_server_say_wait(const struct dial *dial, const struct job *job,
				 const struct tries *tries)
{
	char text[TRIES_TEXT_BYTES];

	tries_text(tries, text, sizeof text);
	if (job->meeting == JOB_FILE)
		long_wait_say("%s, by the file %.300s", find_server_missing_side(job), job->path);
	else
		long_wait_say("%s at %.200s:%d: %.380s", find_server_missing_side(job), job->host,
			      dial->port, text);
	if (find_server_is_new(job))
		rendezvous_tell_launcher(LAUNCHER_WAITS);
}

static bool find_server_is_answered(const struct tries *tries)
{
	return tries->count > 0 &&
	       (tries->most == TRIED_OTHER_SECRET || tries->most == TRIED_OTHER_MEETING);
}

/* Only one job can be at this address, and another one is. */
static bool find_server_is_last_word(const struct call *call)
{
	return call->dial->is_only && find_server_is_answered(&call->tries);
}

/* told: of the last round; of an earlier one that says more, where a process answered then, or the
 * deadline has cut the last round short. */
static void find_server_keep(struct tries *told, const struct tries *round, bool is_cut)
{
	bool may_stay =
		is_cut || (find_server_is_answered(told) && !find_server_is_answered(round));

	if (told->count == 0 || told->most < round->most || !may_stay)
		*told = *round;
}

static tutti_status find_server_give_up(const struct call *call, const struct tries *tries,
					uint64_t begun_ns)
{
	const struct job *job = call->job;
	const struct dial *dial = call->dial;
	unsigned long long ms = (clock_now_ns() - begun_ns) / 1000000;
	tutti_status status =
		tries->most == TRIED_OTHER_SECRET ? TUTTI_ERR_AUTH : TUTTI_ERR_TIMEOUT;
	char text[TRIES_TEXT_BYTES], ports[48] = "";

	tries_text(tries, text, sizeof text);
	if (dial->ports > 1)
		snprintf(ports, sizeof ports, " (on the ports %d to %d)", dial->port,
			 dial->port + dial->ports - 1);
	errno = tries->error;
	if (tries->most == TRIED_DENIED)
		return fail(call->denied == TUTTI_OK ? TUTTI_ERR_SYSTEM : call->denied,
			    "rank %d of %d cannot look for %s: %.400s", job->rank, job->size,
			    find_server_missing_side(job), text);
	if (find_server_is_last_word(call))
		return fail(tries->most == TRIED_OTHER_MEETING ? TUTTI_ERR_MISMATCH : status,
			    "rank %d of %d: %.400s", job->rank, job->size, text);
	return fail(status, "rank %d of %d gave up after %llu ms: %s is missing%s: %.380s",
		    job->rank, job->size, ms, find_server_missing_side(job), ports, text);
}

/* One round. IN_PROGRESS: call->tries has the outcomes. */
static tutti_status find_server_dial_round(struct call *call, const struct env *env, struct wire *w)
{
	tutti_status status = find_server_find(call->dial, call->job, env, call->deadline_ns);

	call->tries = (struct tries){0};
	if (status == TUTTI_IN_PROGRESS)
		tries_add(&call->tries, TRIED_REFUSED, errno, last_error());
	TRY(status);
	status = find_server_dial_all(call, w);
	call->attempt_ms =
		find_server_earlier(call->attempt_ms + call->attempt_ms / 2, ATTEMPT_MAX_MS);
	return status;
}

tutti_status find_server(struct dial *dial, const struct job *job, const struct env *env,
			 uint64_t deadline_ns, struct wire *w)
{
	struct call call = {
		.dial = dial, .job = job, .attempt_ms = ATTEMPT_MIN_MS, .deadline_ns = deadline_ns};
	uint64_t begun_ns = clock_now_ns();
	struct tries told = {0};
	struct long_wait wait = {0};

	for (int attempt = 0;; attempt++) {
		tutti_status status = find_server_dial_round(&call, env, w);

		if (status != TUTTI_IN_PROGRESS)
			return status;
		find_server_keep(&told, &call.tries, find_server_is_late(&call));
		if (call.denied != TUTTI_OK || find_server_is_last_word(&call))
			return find_server_give_up(&call, &told, begun_ns);
		if (long_wait_is_due(&wait, clock_now_ns()))
			find_server_say_wait(dial, job, &told);
		net_pause(attempt, deadline_ns);
		if (find_server_is_late(&call))
			return find_server_give_up(&call, &told, begun_ns);
	}
}

/* One try. PEER, without a message: no process listens there, or another program does. */
static tutti_status find_server_dial_again(const struct dial *dial, const struct job *job,
					   uint64_t deadline_ns, struct wire *w,
					   struct tries *tries)
{
	uint64_t attempt_ns = find_server_earlier(deadline_after_ms(ATTEMPT_MAX_MS), deadline_ns);
	struct keys keys = {dial->key, NULL};
	tutti_status status = net_try_connect(dial->host, dial->host_port, attempt_ns, &w->fd);

	if (status == TUTTI_IN_PROGRESS) {
		tries_add(tries, tried_of(errno), errno, last_error());
		return errno == ECONNREFUSED ? TUTTI_ERR_PEER : status;
	}
	TRY(status);
	status = find_server_shake_hands(w, &keys, job, attempt_ns, deadline_ns);
	if (status == TUTTI_OK)
		return TUTTI_OK;
	bool may_go_on =
		!find_server_note_greeting(tries, job, status, dial->host, dial->host_port);
	wire_close(w);
	return status == TUTTI_ERR_AUTH ? TUTTI_ERR_PEER : may_go_on ? TUTTI_IN_PROGRESS : status;
}

tutti_status find_server_again(const struct dial *dial, const struct job *job, uint64_t deadline_ns,
			       struct wire *w)
{
	uint64_t begun_ns = clock_now_ns();
	struct tries tries = {0};
	char text[TRIES_TEXT_BYTES];

	tries_add(&tries, TRIED_HUNG_UP, 0,
		  "it hangs up before it has read the rank that calls (is there a flood of "
		  "connections?)");
	for (int attempt = 0; clock_now_ns() < cancel_deadline(deadline_ns); attempt++) {
		net_pause(attempt, deadline_ns);
		tutti_status status = find_server_dial_again(dial, job, deadline_ns, w, &tries);
		if (status != TUTTI_IN_PROGRESS)
			return status;
	}
	return fail(TUTTI_ERR_TIMEOUT,
		    "rank %d of %d gave up after %llu ms: the server of the joining ranks at "
		    "%.200s:%d does not accept it again: %.200s",
		    job->rank, job->size, (unsigned long long)(clock_now_ns() - begun_ns) / 1000000,
		    dial->host, dial->host_port, tries_text(&tries, text, sizeof text));
}
