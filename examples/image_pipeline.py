"""Sharpen the images of a folder on all devices, through a ring of pinned buffers.

A host task reads an image into a buffer of the ring, a target region sharpens it, and another host task writes the
result to a file. The images take the buffers in turn. A buffer is in the ``depend`` clauses of all that use it, so the
next image waits until the image before has left. Reading, copies, computation and writing of different images overlap.

Run it: ``python examples/image_pipeline.py``, or with the number of images and their edge: ``… 100 1024``.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

import offload as omp
from offload import from_, in_, out, to


@omp.task(depend=[out("image")])
def read(path, image):
    image[...] = np.load(path)


@omp.target(nowait=True, map=[to("image"), from_("result")], depend=[in_("image"), out("result")])
def sharpen(image, result):
    """Add to each inner pixel its difference from the mean of its four neighbours."""
    pixels = image.astype(np.float32)
    mean = (pixels[:-2, 1:-1] + pixels[2:, 1:-1] + pixels[1:-1, :-2] + pixels[1:-1, 2:]) / 4
    pixels[1:-1, 1:-1] += pixels[1:-1, 1:-1] - mean
    result[...] = pixels.clip(0, 255).astype(np.uint8)


@omp.task(depend=[in_("result")])
def write(path, result):
    np.save(path, result)


def pipeline(paths, folder, shape, n_buffers=4):
    """Write the sharpened images to a folder, under the same names."""
    n_devices = omp.get_num_devices()
    ring = [(omp.empty_pinned(shape, np.uint8), omp.empty_pinned(shape, np.uint8)) for _ in range(n_buffers)]
    for number, path in enumerate(paths):
        image, result = ring[number % n_buffers]
        read(path, image)
        sharpen.options(device=number % n_devices)(image, result)
        write(folder / path.name, result)
    omp.taskwait()


def main(n_images=8, edge=256):
    images = np.random.default_rng(1).integers(0, 256, (n_images, edge, edge), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [folder / f"{number}.npy" for number in range(n_images)]
        for path, image in zip(paths, images, strict=True):
            np.save(path, image)
        (folder / "sharp").mkdir()
        pipeline(paths, folder / "sharp", (edge, edge))

        for path, image in zip(paths, images.astype(int), strict=True):
            around = image[:-2, 1:-1] + image[2:, 1:-1] + image[1:-1, :-2] + image[1:-1, 2:]
            image[1:-1, 1:-1] = (2 * image[1:-1, 1:-1] - around / 4).clip(0, 255)
            assert (np.load(folder / "sharp" / path.name) == image).all()
    print(f"{n_images} images of {edge} x {edge} pixels on {omp.get_num_devices()} device(s): sharpened")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
