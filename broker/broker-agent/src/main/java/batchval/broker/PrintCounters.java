package batchval.broker;

import com.sun.tools.attach.VirtualMachine;

import java.util.Arrays;
import java.util.Comparator;

import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Prints the counters of a broker on this machine: java -jar batchval-broker-agent.jar PID. */
public final class PrintCounters {
    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: java -jar batchval-broker-agent.jar PID");
            System.exit(2);
        }
        VirtualMachine broker = VirtualMachine.attach(arguments[0]);
        String address;
        try {
            address = broker.startLocalManagementAgent();
        } finally {
            broker.detach();
        }
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            ObjectName name = new ObjectName(Agent.MBEAN);
            MBeanAttributeInfo[] attributes = server.getMBeanInfo(name).getAttributes();
            Arrays.sort(attributes, Comparator.comparing(MBeanAttributeInfo::getName));
            for (MBeanAttributeInfo attribute : attributes)
                System.out.println(attribute.getName() + "="
                    + server.getAttribute(name, attribute.getName()));
        }
    }

    private PrintCounters() { }
}
