/* A transport plugin that is wrong in the way that BAD_PLUGIN says: for test_registry. */
#include <tutti/transport.h>

#include <stdlib.h>
#include <string.h>

static tutti_status open_none(struct tutti_endpoint **endpoint,
			      const struct tutti_endpoint_config *config)
{
	(void)endpoint;
	(void)config;
	return TUTTI_ERR_UNSUPPORTED;
}

static int reach_none(struct tutti_endpoint *endpoint, int peer, const uint8_t *address,
		      size_t address_bytes)
{
	(void)endpoint;
	(void)peer;
	(void)address;
	(void)address_bytes;
	return 0;
}

static tutti_status connect_none(struct tutti_endpoint *endpoint, int peer, int channel,
				 const uint8_t *address, size_t address_bytes,
				 struct tutti_conn **conn)
{
	(void)endpoint;
	(void)peer;
	(void)channel;
	(void)address;
	(void)address_bytes;
	(void)conn;
	return TUTTI_ERR_UNSUPPORTED;
}

static void post_none(struct tutti_conn *conn, struct tutti_io *io)
{
	(void)conn;
	(void)io;
}

static int progress_none(struct tutti_endpoint *endpoint, struct tutti_done *done)
{
	(void)endpoint;
	(void)done;
	return 0;
}

static void close_none(struct tutti_conn *conn)
{
	(void)conn;
}

static void destroy_none(struct tutti_endpoint *endpoint)
{
	(void)endpoint;
}

static int event_fd_none(struct tutti_endpoint *endpoint)
{
	(void)endpoint;
	return -1;
}

__attribute__((visibility("default"))) const struct tutti_transport *tutti_transport_plugin(void);

const struct tutti_transport *tutti_transport_plugin(void)
{
	static struct tutti_transport t;
	const char *how = getenv("BAD_PLUGIN");

	t = (struct tutti_transport){
		.abi = TUTTI_TRANSPORT_ABI,
		.name = "bad",
		.kinds = 1u << TUTTI_MEMORY_HOST,
		.open = open_none,
		.reach = reach_none,
		.connect = connect_none,
		.send = post_none,
		.recv = post_none,
		.progress = progress_none,
		.close = close_none,
		.destroy = destroy_none,
	};
	if (!how || strcmp(how, "null") == 0)
		return NULL;
	if (strcmp(how, "old") == 0)
		t.abi = 99;
	else if (strcmp(how, "twin") == 0)
		t.name = "tcp";
	else if (strcmp(how, "nameless") == 0)
		t.name = "";
	else if (strcmp(how, "armless") == 0)
		t.event_fd = event_fd_none;
	return &t;
}
