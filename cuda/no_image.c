/* In place of the compiled kernels, where there was no nvcc: no driver takes it. */
#include "cuda/kernels/image.h"

const char cuda_kernels_image[] = "Tutti was built without nvcc: there are no kernels";
const bool cuda_kernels_are_built = false;
