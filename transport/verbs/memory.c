/* Memory that devices read and write where it lies: known memory, and memory of a GPU, which
 * the CPU may not touch. */
#include "transport/verbs/memory.h"

#include "core/log.h"
#include "core/memory/dma_buf.h"
#include "core/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/verbs.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Known memory as one device has it registered: for as long as it is known. */

static struct verbs_device *verbs_memory_device_of(struct known_memory_user *user)
{
	return (struct verbs_device *)((char *)user - offsetof(struct verbs_device, registers));
}

/* Memory that cannot be registered is sent and received through the memory of each conn. */
static void *verbs_registered_add(struct known_memory_user *user, void *base, size_t bytes)
{
	struct ibv_mr *mr;

	if (verbs_register(&mr, verbs_memory_device_of(user), base, bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) == TUTTI_OK)
		return mr;
	log_seldom("%s; messages from and to it are copied", last_error());
	return NULL;
}

static void verbs_registered_remove(struct known_memory_user *user, void *mr)
{
	verbs_memory_device_of(user)->library->dereg_mr(mr);
}

void verbs_registered_open(struct verbs_device *device)
{
	device->registers = (struct known_memory_user){.add = verbs_registered_add,
						       .remove = verbs_registered_remove};
	known_memory_join(&device->registers);
}

void verbs_registered_close(struct verbs_device *device)
{
	known_memory_leave(&device->registers);
}

struct verbs_map {
	uintptr_t base;
	size_t bytes;
	struct ibv_mr *mr[VERBS_PORTS]; /* ports of one device have one */
};

static int verbs_memory_first_of_device(const struct verbs_endpoint *endpoint, int port)
{
	int p = 0;

	while (endpoint->ports[p].device != endpoint->ports[port].device)
		p++;
	return p;
}

/* Under the address that it has here, so that peers and this rank name bytes alike. */
static tutti_status verbs_memory_map_by(const struct verbs_device *device, int rank,
					const struct memory_dma_buf *dma_buf,
					const struct verbs_map *map, struct ibv_mr **mr)
{
	*mr = device->library->reg_dmabuf_mr(device->pd, dma_buf->offset, map->bytes, map->base,
					     dma_buf->fd,
					     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (*mr)
		return TUTTI_OK;
	int why = errno;
	return fail(why == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_UNSUPPORTED,
		    "verbs: rank %d's %s cannot reach %zu KiB of device memory "
		    "(ibv_reg_dmabuf_mr): %s",
		    rank, device->library->get_device_name(device->context->device),
		    map->bytes >> 10, strerror(why));
}

static tutti_status verbs_memory_map_by_all(const struct verbs_endpoint *endpoint,
					    const struct memory_dma_buf *dma_buf,
					    struct verbs_map *map)
{
	for (int p = 0; p < endpoint->port_count; p++) {
		int first = verbs_memory_first_of_device(endpoint, p);
		if (first == p)
			TRY(verbs_memory_map_by(endpoint->ports[p].device, endpoint->rank, dma_buf,
						map, &map->mr[p]));
		map->mr[p] = map->mr[first];
	}
	return TUTTI_OK;
}

/* A descriptor that is none: a driver that can says so, and others that they cannot. */
bool verbs_device_maps(const struct verbs_device *device)
{
	struct ibv_mr *mr = device->library->reg_dmabuf_mr(device->pd, 0, 1, 0, -1, 0);
	int why = errno;

	if (mr)
		device->library->dereg_mr(mr);
	errno = why;
	return mr || (why != EOPNOTSUPP && why != EPROTONOSUPPORT && why != ENOSYS);
}

static tutti_status verbs_memory_can_map(const struct verbs_endpoint *endpoint)
{
	for (int p = 0; p < endpoint->port_count; p++) {
		const struct verbs_device *device = endpoint->ports[p].device;
		if (!verbs_device_maps(device))
			return fail(TUTTI_ERR_UNSUPPORTED,
				    "verbs: the driver of rank %d's %s registers no dma-buf "
				    "(ibv_reg_dmabuf_mr): %s",
				    endpoint->rank,
				    device->library->get_device_name(device->context->device),
				    strerror(errno));
	}
	return endpoint->port_count ? TUTTI_OK
				    : fail(TUTTI_ERR_UNSUPPORTED, "verbs: rank %d has no RDMA port",
					   endpoint->rank);
}

tutti_status verbs_map(struct tutti_endpoint *base, int kind, void *ptr, size_t bytes, void **out)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	struct memory_dma_buf dma_buf;
	struct verbs_map *map;
	tutti_status status;

	if (bytes == 0)
		return verbs_memory_can_map(endpoint);
	if (!(map = calloc(1, sizeof *map)))
		return fail(TUTTI_ERR_MEMORY, "Rank %d has no memory to map device memory.",
			    endpoint->rank);
	*map = (struct verbs_map){.base = (uintptr_t)ptr, .bytes = bytes};
	status = memory_dma_buf(&dma_buf, kind, ptr, bytes);
	if (status == TUTTI_OK) {
		status = verbs_memory_map_by_all(endpoint, &dma_buf, map);
		close(dma_buf.fd);
	}
	if (status != TUTTI_OK) {
		verbs_unmap(base, map);
		return status;
	}
	*out = map;
	return TUTTI_OK;
}

void verbs_unmap(struct tutti_endpoint *base, void *map)
{
	struct verbs_endpoint *endpoint = (struct verbs_endpoint *)base;
	struct verbs_map *mapped = map;

	for (int p = 0; p < endpoint->port_count; p++)
		if (mapped->mr[p] && verbs_memory_first_of_device(endpoint, p) == p)
			endpoint->ports[p].device->library->dereg_mr(mapped->mr[p]);
	free(map);
}

static void verbs_read_keys(const void *handle, void *to)
{
	const struct ibv_mr *mr = handle;
	struct verbs_keys *keys = to;

	*keys = (struct verbs_keys){mr->lkey, mr->rkey};
}

bool verbs_keys_of(const struct verbs_conn *conn, int rail, const struct verbs_map *map,
		   const void *ptr, size_t bytes, struct verbs_keys *keys)
{
	const struct verbs_port *port = conn->rails[rail].port;

	if (!map)
		return known_memory_read(&port->device->registers, ptr, bytes, verbs_read_keys,
					 keys);
	verbs_read_keys(map->mr[port - verbs_endpoint_of(conn)->ports], keys);
	return true;
}

static bool verbs_covers(const struct verbs_map *map, const void *ptr, size_t bytes)
{
	uintptr_t at = (uintptr_t)ptr;

	return at >= map->base && at - map->base <= map->bytes &&
	       bytes <= map->bytes - (at - map->base);
}

bool verbs_map_covers(const struct verbs_map *map, const struct tutti_io *io)
{
	for (uint32_t i = 0; io->pieces && i < io->piece_count; i++)
		if (!verbs_covers(map, io->pieces[i].buf, io->pieces[i].bytes))
			return false;
	return io->pieces || verbs_covers(map, io->buf, io->bytes);
}
