/* Updates on the host. While it updates a tile the next gradient comes down and the last result
 * goes up, each through one of two buffers. All copies are in the order of the stream. */
#include "train/device/train_device_internal.h"

/* Where tiles of an array are. */
struct passage {
	struct train_device *device;
	const struct device_tiles *of;
	size_t tiles;
};

static size_t elements_of(const struct passage *p, size_t tile)
{
	return smaller(TILE_ELEMENTS, p->of->count - tile * TILE_ELEMENTS);
}

static tutti_status device_tiles_make_buffer(char **buffer, CUevent *event)
{
	const struct cuda_driver *cuda = cuda_driver();
	void *memory;

	CUDA_TRY(event_create, event, CU_EVENT_DISABLE_TIMING);
	CUDA_TRY(mem_host_alloc, &memory, TILE_ELEMENTS * sizeof(float), CU_MEMHOSTALLOC_PORTABLE);
	*buffer = memory;
	return TUTTI_OK;
}

static tutti_status device_tiles_make(struct tiles *tiles)
{
	for (int i = 0; i < TILES; i++) {
		if (!tiles->grad[i])
			TRY(device_tiles_make_buffer(&tiles->grad[i], &tiles->is_down[i]));
		if (!tiles->result[i])
			TRY(device_tiles_make_buffer(&tiles->result[i], &tiles->is_up[i]));
	}
	return TUTTI_OK;
}

void tiles_free(struct tiles *tiles)
{
	const struct cuda_driver *cuda = cuda_driver();

	for (int i = 0; i < TILES; i++) {
		if (tiles->is_down[i])
			cuda->event_destroy(tiles->is_down[i]);
		if (tiles->is_up[i])
			cuda->event_destroy(tiles->is_up[i]);
		if (tiles->grad[i])
			cuda->mem_free_host(tiles->grad[i]);
		if (tiles->result[i])
			cuda->mem_free_host(tiles->result[i]);
	}
}

static tutti_status device_tiles_fetch(const struct passage *p, size_t tile)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct train_device *d = p->device;
	size_t width = p->of->grad_width;
	const char *from = (const char *)p->of->grad + tile * TILE_ELEMENTS * width;

	if (tile >= p->tiles)
		return TUTTI_OK;
	CUDA_TRY(memcpy_async, train_device_address(d->tiles.grad[tile % TILES]),
		 train_device_address(from), elements_of(p, tile) * width, d->stream);
	CUDA_TRY(event_record, d->tiles.is_down[tile % TILES], d->stream);
	return TUTTI_OK;
}

static tutti_status device_tiles_send(const struct passage *p, size_t tile)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct train_device *d = p->device;
	size_t width = p->of->result_width;
	const char *to = (const char *)p->of->result + tile * TILE_ELEMENTS * width;

	CUDA_TRY(memcpy_async, train_device_address(to),
		 train_device_address(d->tiles.result[tile % TILES]), elements_of(p, tile) * width,
		 d->stream);
	CUDA_TRY(event_record, d->tiles.is_up[tile % TILES], d->stream);
	return TUTTI_OK;
}

static tutti_status device_tiles_pass(const struct passage *p)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct tiles *tiles = &p->device->tiles;

	TRY(device_tiles_make(tiles));
	TRY(device_tiles_fetch(p, 0));
	for (size_t tile = 0; tile < p->tiles; tile++) {
		TRY(device_tiles_fetch(p, tile + 1));
		CUDA_TRY(event_synchronize, tiles->is_down[tile % TILES]);
		/* An event that was never recorded is over. */
		CUDA_TRY(event_synchronize, tiles->is_up[tile % TILES]);
		p->of->update(p->of->arg, tile * TILE_ELEMENTS, elements_of(p, tile),
			      tiles->grad[tile % TILES], tiles->result[tile % TILES]);
		TRY(device_tiles_send(p, tile));
	}
	return TUTTI_OK;
}

void train_device_update_tiles(struct train_device *d, const struct device_tiles *of)
{
	const struct passage p = {d, of, (of->count + TILE_ELEMENTS - 1) / TILE_ELEMENTS};
	struct cuda_visit visit;

	if (train_device_enter(d, &visit))
		train_device_leave(d, &visit, device_tiles_pass(&p));
}
