/* The image is the file that cmake/cuda.cmake makes. */
#include "cuda/kernels/kernels_image.h"

#include <stdint.h>

#ifdef CUDA_KERNELS_IMAGE

__asm__(".pushsection .rodata\n"
	".balign 16\n"
	".global cuda_kernels_image\n"
	".hidden cuda_kernels_image\n"
	"cuda_kernels_image:\n"
	".incbin \"" CUDA_KERNELS_IMAGE "\"\n"
	".balign 8\n"
	".global cuda_kernels_image_bytes\n"
	".hidden cuda_kernels_image_bytes\n"
	"cuda_kernels_image_bytes:\n"
	".quad . - cuda_kernels_image\n"
	".popsection\n");
_Static_assert(sizeof(size_t) == sizeof(uint64_t), "a .quad is a size_t");
const bool cuda_kernels_are_built = true;

#else

const char cuda_kernels_image[] = "built without nvcc";
const size_t cuda_kernels_image_bytes = sizeof cuda_kernels_image;
const bool cuda_kernels_are_built = false;

#endif
