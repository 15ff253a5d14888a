/* Keys of meetings. No error message and no log line here ever shows one. */
#include "core/join/secret.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/net.h"
#include "core/status.h"
#include "core/join/frame.h"
#include "core/join/place.h"
#include "core/join/server.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 64
#define ASK_MS     2000

void secret_key(uint8_t key[TUTTI_KEY_BYTES], const char *secret, const char *second, int port)
{
	uint8_t first_key[TUTTI_KEY_BYTES], second_key[TUTTI_KEY_BYTES], text[16] = "meeting";

	auth_key_from_secret(first_key, secret);
	auth_key_from_secret(second_key, second);
	put_u32(text + 8, (uint32_t)port);
	crypto_generichash_state state;
	crypto_generichash_init(&state, first_key, sizeof first_key, TUTTI_KEY_BYTES);
	crypto_generichash_update(&state, second_key, sizeof second_key);
	crypto_generichash_update(&state, text, sizeof text);
	crypto_generichash_final(&state, key, TUTTI_KEY_BYTES);
	sodium_memzero(first_key, sizeof first_key);
	sodium_memzero(second_key, sizeof second_key);
	sodium_memzero(&state, sizeof state);
}

/* job->secret is "" where TUTTI_INSECURE=1 stands for it. */
static void secret_given_key(uint8_t key[TUTTI_KEY_BYTES], const struct job *job, bool is_grow)
{
	secret_key(key, job->secret, is_grow ? "grow" : "", job->port_is_taken ? job->port : 0);
}

bool secret_is_given(uint8_t key[TUTTI_KEY_BYTES], const struct job *job, const struct env *env)
{
	if (!job->secret[0]) {
		if (!env->insecure)
			return false;
		log_info("TUTTI_INSECURE=1: every process that reaches rank 0 may join");
	}
	secret_given_key(key, job, job->is_growing && !job->is_url);
	return true;
}

void secret_other_kind(uint8_t key[TUTTI_KEY_BYTES], const struct job *job)
{
	secret_given_key(key, job, !job->is_growing);
}

tutti_status secret_check_here(const struct job *job)
{
	char name[24];
	bool is_here;
	tutti_status status = place_is_here(job->host, &is_here);

	snprintf(name, sizeof name, "rank %d: ", job->rank);
	if (status != TUTTI_OK)
		return status == TUTTI_IN_PROGRESS ? status : fail_before(status, name);
	if (is_here)
		return TUTTI_OK;
	return fail(
		TUTTI_ERR_AUTH,
		"rank %d is to meet rank 0 at %.200s, which is not this machine, and across "
		"machines ranks join only with a secret: set TUTTI_SECRET or TUTTI_SECRET_FILE to "
		"the same on all ranks (or TUTTI_INSECURE=1 where nobody else can reach them)",
		job->rank, job->host);
}

static void secret_name_of(char name[NAME_BYTES], const struct job *job)
{
	snprintf(name, NAME_BYTES, "tutti-rendezvous-%u-%d%s", (unsigned)geteuid(), job->port,
		 job->is_growing ? "-grow" : "");
}

tutti_status secret_listen(const struct job *job, int *unix_fd)
{
	char name[NAME_BYTES];
	tutti_status status;

	secret_name_of(name, job);
	status = net_unix_listen(name, 1024, unix_fd);
	if (status != TUTTI_OK && errno == EADDRINUSE)
		return fail(TUTTI_ERR_SYSTEM,
			    "another job of this machine meets at port %d already: choose another "
			    "MASTER_PORT, or give each job a TUTTI_SECRET",
			    job->port);
	return status;
}

tutti_status secret_take_offer(const uint8_t offer[OFFER_BYTES], uint8_t key[TUTTI_KEY_BYTES],
			       int *real_port)
{
	uint32_t port = get_u32(offer + TUTTI_KEY_BYTES);

	if (port < 1 || port > 65535)
		return fail(TUTTI_ERR_MISMATCH,
			    "rank 0 offered %u as the port of its meeting (has it the same version "
			    "of Tutti?)",
			    port);
	memcpy(key, offer, TUTTI_KEY_BYTES);
	*real_port = (int)port;
	return TUTTI_OK;
}

static tutti_status secret_receive_offer(int fd, uint64_t deadline_ns, uint8_t key[TUTTI_KEY_BYTES],
					 int *real_port)
{
	uint8_t offer[OFFER_BYTES];
	tutti_status status;

	/* Every process may take the name: what counts is the user of the one that has. */
	TRY(net_unix_check(fd, NULL));
	status = net_recv_all(fd, offer, sizeof offer, deadline_ns);
	if (status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT) {
		fail(status, "rank 0 %s on its Unix socket",
		     status == TUTTI_ERR_PEER ? "closed the connection without offering the secret"
					      : "has not offered the secret in time");
		return TUTTI_IN_PROGRESS;
	}
	if (status == TUTTI_OK)
		status = secret_take_offer(offer, key, real_port);
	sodium_memzero(offer, sizeof offer);
	return status;
}

tutti_status secret_ask(const struct job *job, uint64_t deadline_ns, uint8_t key[TUTTI_KEY_BYTES],
			int *real_port)
{
	uint64_t soon_ns = deadline_after_ms(ASK_MS);
	char name[NAME_BYTES];
	tutti_status status;
	int fd;

	secret_name_of(name, job);
	status = net_unix_connect(name, &fd);
	if (status == TUTTI_IN_PROGRESS && errno == EAGAIN)
		fail(status,
		     "rank 0 of the job at %.200s:%d has too many pending connections that ask for "
		     "its secret",
		     job->host, job->port);
	else if (status == TUTTI_IN_PROGRESS)
		fail(status,
		     "no process of this user serves a job at %.200s:%d on this machine (and this "
		     "rank was given no secret to look further)",
		     job->host, job->port);
	TRY(status);
	status = secret_receive_offer(fd, soon_ns < deadline_ns ? soon_ns : deadline_ns, key,
				      real_port);
	close(fd);
	return status;
}
