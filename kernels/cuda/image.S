/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.S - the device code, as it is given to the driver
 *
 * A table of images, one of each file that nvcc compiled, which images.h, made
 * by the build, lists; it ends with an empty entry.  Where the build had no
 * nvcc it is empty: no GPU can run it, and the tests' stand-in, which brings
 * its own code, does not look at it.
 */
	.macro	IMAGE file
	.section .rodata.image, "a", %progbits
	.balign	64
1:	.incbin	"\file"
	.section .data.rel.ro.images, "aw", %progbits
	.quad	1b
	.endm

	.section .data.rel.ro.images, "aw", %progbits
	.balign	8
	.globl	kern_cuda_images
	.type	kern_cuda_images, %object
kern_cuda_images:
#include "images.h"
	.section .data.rel.ro.images, "aw", %progbits
	.quad	0
	.size	kern_cuda_images, . - kern_cuda_images

	.section .note.GNU-stack, "", %progbits
