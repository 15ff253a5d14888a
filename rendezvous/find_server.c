/* Until a server has proved that it knows the job's key, whatever answers may be another
 * program, another job, this job's last meeting on its way out. Those are passed over. */
#include "rendezvous/find_server.h"

#include "core/net.h"
#include "core/cancel.h"
#include "core/long_wait.h"
#include "rendezvous/secret.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* How long one address may take to answer: at first, and after some rounds through all. */
#define ATTEMPT_MIN_MS 500
#define ATTEMPT_MAX_MS 8000

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The rank that calls. */
static void put_name(uint8_t frame[FRAME_BYTES + FRAME_HELLO_BYTES], const struct job *job,
		     uint64_t deadline_ns)
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
static tutti_status check_answer(struct auth *auth, const struct keys *keys,
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

/* IN_PROGRESS: another program is there. AUTH, MISMATCH: as check_answer. */
static tutti_status shake_hands(struct wire *w, const struct keys *keys, const struct job *job,
				uint64_t attempt_ns, uint64_t deadline_ns)
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
	if (net_send_all(w->fd, hello, sizeof hello, attempt_ns) != TUTTI_OK ||
	    net_recv_all(w->fd, answer, sizeof answer, attempt_ns) != TUTTI_OK)
		return TUTTI_IN_PROGRESS;
	TRY(check_answer(&auth, keys, answer, reply));
	put_name(frame, job, deadline_ns);
	status = net_send_all(w->fd, reply, first, attempt_ns);
	if (status == TUTTI_OK && is_secure)
		status = wire_secure(w, &auth, attempt_ns);
	if (status == TUTTI_OK && is_secure)
		status = wire_send(w, frame, sizeof reply - first, attempt_ns);
	sodium_memzero(&auth, sizeof auth);
	return status == TUTTI_OK ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

tutti_status find_server_own(struct wire *w, const uint8_t key[TUTTI_KEY_BYTES],
			     const struct job *job, uint64_t deadline_ns)
{
	struct keys keys = {key, NULL};
	tutti_status status = shake_hands(w, &keys, job, deadline_ns, deadline_ns);

	if (status == TUTTI_OK)
		return TUTTI_OK;
	return fail(TUTTI_ERR_TIMEOUT, "rank 0 could not join its own meeting before the deadline");
}

/* One rank's call of one meeting. */
struct call {
	struct dial *dial;
	const struct job *job;
	uint64_t attempt_ms, deadline_ns;
};

static tutti_status refuse(const struct job *job, tutti_status status, const char *host, int port)
{
	if (status == TUTTI_ERR_AUTH)
		return fail(status,
			    "the process that listens at %.200s:%d cannot prove that it knows this "
			    "rank's "
			    "secret: it is another job, another program, or the secrets differ",
			    host, port);
	if (status == TUTTI_ERR_MISMATCH && job->is_growing)
		return fail(status,
			    "the process that listened at %.200s:%d knew the secret, but waited "
			    "for the ranks of a job that begins, not for those that join one which "
			    "grows (TUTTI_RESTARTED, tutti_comm_grow)",
			    host, port);
	if (status == TUTTI_ERR_MISMATCH)
		return fail(status,
			    "the process that listens at %.200s:%d knows the secret, but calls "
			    "tutti_comm_grow, which new ranks join with TUTTI_RESTARTED=1",
			    host, port);
	fail(status,
	     "the process that listens at %.200s:%d does not answer as rank 0 of a job would (is "
	     "it another program's port?)",
	     host, port);
	return status;
}

static tutti_status dial_one(const struct call *call, const char host[HOST_BYTES], int port,
			     struct wire *w)
{
	uint64_t attempt_ns =
		earlier(deadline_after_ms((int64_t)call->attempt_ms), call->deadline_ns);
	struct keys keys = {call->dial->key,
			    call->dial->has_other_key ? call->dial->other_key : NULL};
	tutti_status status;

	TRY(net_try_connect(host, port, attempt_ns, &w->fd));
	status = shake_hands(w, &keys, call->job, attempt_ns, call->deadline_ns);
	if (status == TUTTI_OK) {
		memcpy(call->dial->host, host, sizeof call->dial->host);
		call->dial->host_port = port;
		return TUTTI_OK;
	}
	wire_close(w);
	return refuse(call->job, status, host, port);
}

/* Once through all addresses. MISMATCH: a server has the secret, for another kind of meeting. */
static tutti_status dial_all(const struct call *call, struct wire *w)
{
	struct dial *dial = call->dial;
	const char *list = dial->hosts;
	char host[HOST_BYTES], other_kind[ERROR_BYTES] = "";
	bool wrong_key = false;

	while (place_next_host(&list, host)) {
		for (int i = 0; i < dial->ports && dial->port + i <= 65535; i++) {
			tutti_status status = dial_one(call, host, dial->port + i, w);
			wrong_key |= status == TUTTI_ERR_AUTH;
			if (status == TUTTI_ERR_MISMATCH)
				snprintf(other_kind, sizeof other_kind, "%s", last_error());
			else if (status != TUTTI_IN_PROGRESS && status != TUTTI_ERR_AUTH)
				return status;
		}
	}
	if (other_kind[0])
		return fail(TUTTI_ERR_MISMATCH, "%s", other_kind);
	if (dial->ports > 1)
		fail(TUTTI_ERR_TIMEOUT,
		     "no process that knows this rank's secret listens at %.200s on the ports %d "
		     "to %d",
		     dial->hosts, dial->port, dial->port + dial->ports - 1);
	return wrong_key ? TUTTI_ERR_AUTH : TUTTI_IN_PROGRESS;
}

static tutti_status find_by_file(struct dial *dial, const struct job *job)
{
	struct job there = {0};
	char url[URL_BYTES];

	TRY(notice_read(job->path, !job->secret[0], url));
	TRY(place_parse(&there, url));
	memcpy(dial->hosts, there.host, sizeof dial->hosts);
	dial->port = there.port;
	secret_key(dial->key, there.secret, job->secret, 0);
	return TUTTI_OK;
}

/* IN_PROGRESS: it cannot be known yet. */
static tutti_status find(struct dial *dial, const struct job *job, const struct env *env,
			 uint64_t deadline_ns)
{
	dial->ports = 1;
	dial->is_only = dial->has_other_key = false;
	if (job->meeting == JOB_FILE)
		return find_by_file(dial, job);
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
	/* The job that is to grow may have its first meeting there still. */
	dial->is_only = dial->ports == 1 && !job->is_url && !job->is_growing;
	return TUTTI_OK;
}

/* Not one of those that grow, which know their server. */
static bool is_new(const struct job *job)
{
	return job->is_growing && job->server < 0;
}

static const char *missing_side(const struct job *job)
{
	return is_new(job)       ? "a running job that calls tutti_comm_grow"
	       : job->is_served  ? "the process that called tutti_rendezvous_open"
	       : job->is_growing ? "the rank that is to meet the new ones in tutti_comm_grow"
				 : "rank 0";
}

/* met: as in give_up. */
static const char *why_missing(const struct kept_error *met)
{
	return met->status != TUTTI_OK ? met->message : last_error();
}

static void say_wait(const struct dial *dial, const struct job *job, const struct kept_error *met)
{
	if (job->meeting == JOB_FILE)
		long_wait_say("%s, by the file %.300s", missing_side(job), job->path);
	else
		long_wait_say("%s at %.200s:%d: %.380s", missing_side(job), job->host, dial->port,
			      why_missing(met));
	if (is_new(job))
		rendezvous_tell_launcher(LAUNCHER_WAITS);
}

/* met: why a process that answered was passed over; OK: none answered. */
static tutti_status give_up(const struct kept_error *met, const struct job *job, uint64_t begun_ns)
{
	tutti_status status = met->status == TUTTI_ERR_AUTH ? TUTTI_ERR_AUTH : TUTTI_ERR_TIMEOUT;
	char why[ERROR_BYTES];

	snprintf(why, sizeof why, "%s", why_missing(met));
	return fail(status, "rank %d of %d gave up after %llu ms: %.380s: %s is missing", job->rank,
		    job->size, (unsigned long long)(clock_now_ns() - begun_ns) / 1000000, why,
		    missing_side(job));
}

/* The process that answered is not the one looked for, which may come there yet. */
static bool is_passed_over(const struct dial *dial, tutti_status status, struct kept_error *met)
{
	if (dial->is_only || (status != TUTTI_ERR_AUTH && status != TUTTI_ERR_MISMATCH))
		return false;
	met->status = status;
	snprintf(met->message, sizeof met->message, "%s", last_error());
	return true;
}

tutti_status find_server(struct dial *dial, const struct job *job, const struct env *env,
			 uint64_t deadline_ns, struct wire *w)
{
	struct call call = {dial, job, ATTEMPT_MIN_MS, deadline_ns};
	uint64_t begun_ns = clock_now_ns();
	struct kept_error met = {.status = TUTTI_OK};
	struct long_wait wait = {0};

	for (int attempt = 0;; attempt++) {
		tutti_status status = find(dial, job, env, deadline_ns);

		if (status == TUTTI_OK) {
			status = dial_all(&call, w);
			call.attempt_ms =
				earlier(call.attempt_ms + call.attempt_ms / 2, ATTEMPT_MAX_MS);
			if (is_passed_over(dial, status, &met))
				status = TUTTI_IN_PROGRESS;
		}
		if (status != TUTTI_IN_PROGRESS)
			return status;
		if (clock_now_ns() >= cancel_deadline(deadline_ns))
			return give_up(&met, job, begun_ns);
		if (long_wait_is_due(&wait, clock_now_ns()))
			say_wait(dial, job, &met);
		net_pause(attempt, deadline_ns);
	}
}

tutti_status find_server_again(const struct dial *dial, const struct job *job, uint64_t deadline_ns,
			       struct wire *w)
{
	uint64_t begun_ns = clock_now_ns();
	struct keys keys = {dial->key, NULL};

	for (int attempt = 0; clock_now_ns() < cancel_deadline(deadline_ns); attempt++) {
		uint64_t attempt_ns = earlier(deadline_after_ms(ATTEMPT_MAX_MS), deadline_ns);
		tutti_status status;

		net_pause(attempt, deadline_ns);
		status = net_try_connect(dial->host, dial->host_port, attempt_ns, &w->fd);
		if (status == TUTTI_IN_PROGRESS && errno == ECONNREFUSED)
			return TUTTI_ERR_PEER;
		if (status == TUTTI_OK) {
			status = shake_hands(w, &keys, job, attempt_ns, deadline_ns);
			if (status == TUTTI_OK)
				return TUTTI_OK;
			wire_close(w);
		}
		if (status == TUTTI_ERR_AUTH) /* another program has its port */
			return TUTTI_ERR_PEER;
		if (status != TUTTI_IN_PROGRESS)
			return status;
	}
	return fail(TUTTI_ERR_TIMEOUT,
		    "rank %d of %d gave up after %llu ms: the server of the joining ranks at "
		    "%.200s:%d answers, but hangs up before it has read the rank that calls (is "
		    "there a flood of connections?)",
		    job->rank, job->size, (unsigned long long)(clock_now_ns() - begun_ns) / 1000000,
		    dial->host, dial->host_port);
}
