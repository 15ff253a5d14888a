/* Rendezvous that a process opens and closes, a rank or not: tutti_rendezvous_open's server. */
#include "core/join/rendezvous.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/status.h"
#include "core/join/place.h"
#include "core/join/secret.h"
#include "core/join/server.h"

#include <sodium.h>
#include <stdio.h>

tutti_status rendezvous_serve(char *url, size_t url_bytes, const struct env *env)
{
	struct server_config config = {.listen_fd = -1,
				       .unix_fd = -1,
				       .own_fd = -1,
				       .rank = -1,
				       .deadline_ns = deadline_after_ms(env->timeout_ms)};
	char secret[SECRET_HEX_BYTES];
	tutti_status status;

	job_reserve_ports(env);
	place_secret(secret);
	secret_key(config.key, secret, "", 0);
	TRY(place_listen(NULL, 0, &config.listen_fd, &config.port));
	status = place_url(url, url_bytes, secret, config.port, env);
	snprintf(config.where, sizeof config.where, "port %d", config.port);
	if (status == TUTTI_OK)
		status = server_start(NULL, &config);
	else
		server_config_close(&config);
	sodium_memzero(&config.key, sizeof config.key);
	sodium_memzero(secret, sizeof secret);
	return status;
}

tutti_status rendezvous_unserve(const char *url)
{
	struct job job = {0};
	uint8_t key[TUTTI_KEY_BYTES];

	TRY(place_parse(&job, url));
	if (!job.is_served)
		return fail(TUTTI_ERR_INVALID,
			    "the rendezvous is not a URL that tutti_rendezvous_open has made");
	secret_key(key, job.secret, "", 0);
	if (!server_stop(key))
		log_info("the rendezvous has ended by itself, or is another process's");
	sodium_memzero(key, sizeof key);
	job_forget(&job);
	return TUTTI_OK;
}
