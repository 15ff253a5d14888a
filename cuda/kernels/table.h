/* The kernels: X(name, threads of a block). Each has struct name_args (args.h), the GPU's entry
 * tutti_name, and name_block() for CPUs (block.h). */
#ifndef CUDA_KERNELS_TABLE_H
#define CUDA_KERNELS_TABLE_H

#define CUDA_KERNELS(X)                                                                            \
	X(train_update, 512)                                                                       \
	X(train_map, 512)                                                                          \
	X(train_squares, 512)                                                                      \
	X(reduce, 512)                                                                             \
	X(reduce_wide, 512)                                                                        \
	X(scale, 512)                                                                              \
	X(packets, 512)                                                                            \
	X(lines, 512)                                                                              \
	X(messages, 512)                                                                           \
	X(turn, 512)

#endif
