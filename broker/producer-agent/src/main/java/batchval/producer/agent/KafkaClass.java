package batchval.producer.agent;

import java.util.ArrayList;
import java.util.List;
import org.objectweb.asm.ClassReader;
import org.objectweb.asm.ClassWriter;
import org.objectweb.asm.Opcodes;
import org.objectweb.asm.Type;
import org.objectweb.asm.tree.AbstractInsnNode;
import org.objectweb.asm.tree.ClassNode;
import org.objectweb.asm.tree.FieldInsnNode;
import org.objectweb.asm.tree.FieldNode;
import org.objectweb.asm.tree.InsnList;
import org.objectweb.asm.tree.InsnNode;
import org.objectweb.asm.tree.MethodInsnNode;
import org.objectweb.asm.tree.MethodNode;
import org.objectweb.asm.tree.TypeInsnNode;
import org.objectweb.asm.tree.VarInsnNode;

/**
 * The bytecode of one class of Kafka: what is looked for in it, and what is added to it.
 *
 * <p>No code that is added to a method of Kafka branches, so that its stack map frames stay right.
 */
final class KafkaClass {
    private final ClassReader reader;
    private final ClassNode node = new ClassNode();

    KafkaClass(byte[] bytes) {
        reader = new ClassReader(bytes);
        reader.accept(node, 0);
    }

    String name() {
        return node.name;
    }

    byte[] bytes() {
        ClassWriter writer = new ClassWriter(reader, ClassWriter.COMPUTE_MAXS);
        node.accept(writer);
        return writer.toByteArray();
    }

    // ---- what is looked for --------------------------------------------------------------------

    /** Return the descriptor of an instance field; null as {@code descriptor} takes any. */
    String field(String name, String descriptor) throws Mismatch {
        for (FieldNode field : node.fields)
            if (field.name.equals(name) && (field.access & Opcodes.ACC_STATIC) == 0
                && (descriptor == null || field.desc.equals(descriptor)))
                return field.desc;
        throw new Mismatch("no field " + name + (descriptor == null ? "" : " " + descriptor));
    }

    boolean has(String name, String descriptor) {
        return find(name, descriptor) != null;
    }

    /** Return an instance method that has code. */
    MethodNode method(String name, String descriptor) throws Mismatch {
        MethodNode method = find(name, descriptor);
        if (method == null)
            throw new Mismatch("no method " + name + descriptor);
        return method;
    }

    private MethodNode find(String name, String descriptor) {
        for (MethodNode method : node.methods)
            if (method.name.equals(name) && method.desc.equals(descriptor)
                && (method.access & (Opcodes.ACC_STATIC | Opcodes.ACC_ABSTRACT)) == 0)
                return method;
        return null;
    }

    /** Return the calls of a method, in order; null as {@code owner} or descriptor takes any. */
    static List<MethodInsnNode> calls(MethodNode in, String owner, String name, String descriptor) {
        List<MethodInsnNode> found = new ArrayList<>();
        for (AbstractInsnNode instruction : in.instructions)
            if (instruction instanceof MethodInsnNode call && call.name.equals(name)
                && (owner == null || call.owner.equals(owner))
                && (descriptor == null || call.desc.equals(descriptor)))
                found.add(call);
        return found;
    }

    /** Return the one call of a method. */
    static MethodInsnNode call(MethodNode in, String owner, String name, String descriptor)
        throws Mismatch {
        return one(calls(in, owner, name, descriptor), in, "calls of " + name);
    }

    /** Return the accesses to a field, in order. */
    static List<FieldInsnNode> accesses(MethodNode in, int opcode, String owner, String name) {
        List<FieldInsnNode> found = new ArrayList<>();
        for (AbstractInsnNode instruction : in.instructions)
            if (instruction instanceof FieldInsnNode access && access.getOpcode() == opcode
                && access.owner.equals(owner) && access.name.equals(name))
                found.add(access);
        return found;
    }

    static List<AbstractInsnNode> instructions(MethodNode in, int opcode) {
        List<AbstractInsnNode> found = new ArrayList<>();
        for (AbstractInsnNode instruction : in.instructions)
            if (instruction.getOpcode() == opcode)
                found.add(instruction);
        return found;
    }

    static <T> T one(List<T> found, MethodNode in, String what) throws Mismatch {
        if (found.size() != 1)
            throw new Mismatch(in.name + " has " + found.size() + " " + what + ", not 1");
        return found.get(0);
    }

    /** Return the next or the previous instruction, without labels, lines and frames. */
    static AbstractInsnNode neighbour(AbstractInsnNode of, boolean next) {
        AbstractInsnNode at = of;
        do
            at = next ? at.getNext() : at.getPrevious();
        while (at != null && at.getOpcode() < 0);
        return at;
    }

    // ---- what is added -------------------------------------------------------------------------

    void implement(Class<?> type) throws Mismatch {
        String name = Type.getInternalName(type);
        if (node.interfaces.contains(name))
            throw new Mismatch("it is patched already");
        node.interfaces.add(name);
    }

    /** Add a public field that no serialization sees. */
    void addField(String name, String descriptor) {
        node.fields.add(new FieldNode(
            Opcodes.ACC_PUBLIC | Opcodes.ACC_TRANSIENT | Opcodes.ACC_SYNTHETIC, name, descriptor,
            null, null));
    }

    /** Add {@code type name()}, which returns a field of the class. */
    void addGetter(String name, Class<?> type, String field, String descriptor) {
        InsnList code = new InsnList();
        code.add(get(field, descriptor));
        add(name, Type.getMethodDescriptor(Type.getType(type)), code, Type.getType(type));
    }

    /** Add {@code void name(type)}, which sets a field of the class. */
    void addSetter(String name, Class<?> type, String field) {
        String descriptor = Type.getDescriptor(type);
        InsnList code = new InsnList();
        code.add(new VarInsnNode(Opcodes.ALOAD, 0));
        code.add(new VarInsnNode(Type.getType(type).getOpcode(Opcodes.ILOAD), 1));
        code.add(new FieldInsnNode(Opcodes.PUTFIELD, node.name, field, descriptor));
        add(name, "(" + descriptor + ")V", code, Type.VOID_TYPE);
    }

    /** Add a public method with this code, which leaves its result on the stack. */
    void add(String name, String descriptor, InsnList code, Type result) {
        MethodNode method = new MethodNode(Opcodes.ACC_PUBLIC | Opcodes.ACC_SYNTHETIC, name,
            descriptor, null, null);
        method.instructions.add(code);
        method.instructions.add(new InsnNode(result.getOpcode(Opcodes.IRETURN)));
        node.methods.add(method);
    }

    /** Return code that loads a field of this. */
    InsnList get(String field, String descriptor) {
        InsnList code = new InsnList();
        code.add(new VarInsnNode(Opcodes.ALOAD, 0));
        code.add(new FieldInsnNode(Opcodes.GETFIELD, node.name, field, descriptor));
        return code;
    }

    /** Return code that consists of these parts. */
    static InsnList code(Object... parts) {
        InsnList code = new InsnList();
        for (Object part : parts)
            if (part instanceof InsnList list)
                code.add(list);
            else
                code.add((AbstractInsnNode) part);
        return code;
    }

    static VarInsnNode load(int opcode, int local) {
        return new VarInsnNode(opcode, local);
    }

    static TypeInsnNode type(int opcode, String name) {
        return new TypeInsnNode(opcode, name);
    }

    /** Return a call of a static method of {@code owner}, which has one method of this name. */
    static MethodInsnNode hook(Class<?> owner, String name) {
        for (java.lang.reflect.Method method : owner.getMethods())
            if (method.getName().equals(name))
                return new MethodInsnNode(Opcodes.INVOKESTATIC, Type.getInternalName(owner), name,
                    Type.getMethodDescriptor(method), false);
        throw new IllegalArgumentException(owner + " has no method " + name);
    }
}
