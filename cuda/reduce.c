/* Fills the arguments of the kernels that reduce and scale; cuda/kernels has what they do. */
#include "cuda/reduce.h"

#include "core/status.h"
#include "cuda/kernels/args.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <assert.h>
#include <string.h>

/* A block has this to do at the least: 16 bytes a thread, several times. */
#define BLOCK_BYTES (64u << 10)

static unsigned blocks_for(const struct cuda_device *device, enum cuda_kernel kernel, size_t bytes)
{
	size_t blocks = bytes / BLOCK_BYTES + 1, most = (size_t)device->blocks_at_once[kernel];

	return (unsigned)(blocks < most ? blocks : most);
}

static tutti_status reduce_launch(const struct cuda_device *device, CUstream stream,
				  enum cuda_kernel kernel, const struct memory_io *io,
				  const void *args)
{
	size_t bytes = io->count * dtype_bytes(io->dtype);

	if (!io->count)
		return TUTTI_OK;
	return cuda_launch(device, kernel, blocks_for(device, kernel, bytes), stream, args);
}

static tutti_status cuda_reduce_wide(const struct cuda_device *device, CUstream stream,
				     const struct memory_io *io, int divisor)
{
	struct reduce_wide_args args = {.dst = {io->dst},
					.count = io->count,
					.n_dst = 1,
					.n_src = io->n_src,
					.dtype = (int32_t)io->dtype,
					.op = (int32_t)op_kernel(io->reduce_op),
					.divisor = divisor};

	assert(io->n_src <= REDUCE_WIDE_KERNEL_SOURCES);
	memcpy(args.src, io->src, (size_t)io->n_src * sizeof args.src[0]);
	return reduce_launch(device, stream, CUDA_KERNEL_reduce_wide, io, &args);
}

static tutti_status cuda_reduce_sources(const struct cuda_device *device, CUstream stream,
					const struct memory_io *io, const void *const *src,
					int n_src)
{
	struct reduce_args args = {.dst = {io->dst},
				   .count = io->count,
				   .n_dst = 1,
				   .n_src = n_src,
				   .dtype = (int32_t)io->dtype,
				   .op = (int32_t)op_kernel(io->reduce_op),
				   .divisor = io->divisor};

	memcpy(args.src, src, (size_t)n_src * sizeof args.src[0]);
	return reduce_launch(device, stream, CUDA_KERNEL_reduce, io, &args);
}

tutti_status cuda_reduce(const struct cuda_device *device, CUstream stream,
			 const struct memory_io *io)
{
	if (io->n_src > REDUCE_KERNEL_SOURCES)
		return cuda_reduce_wide(device, stream, io, io->divisor);
	return cuda_reduce_sources(device, stream, io, io->src, io->n_src);
}

/* As reduce_finish: an average of one. */
tutti_status cuda_finish(const struct cuda_device *device, CUstream stream,
			 const struct memory_io *io)
{
	const void *src = io->dst;

	if (io->reduce_op != TUTTI_AVG || io->divisor == 0)
		return TUTTI_OK;
	return cuda_reduce_sources(device, stream, io, &src, 1);
}

tutti_status cuda_scale(const struct cuda_device *device, CUstream stream,
			const struct memory_io *io)
{
	struct scale_args args = {
		.dst = io->dst, .src = io->src[0], .count = io->count, .dtype = (int32_t)io->dtype};

	memcpy(&args.scalar, op_scalar(io->reduce_op), dtype_bytes(io->dtype));
	return reduce_launch(device, stream, CUDA_KERNEL_scale, io, &args);
}
